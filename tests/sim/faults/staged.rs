//! Borrowed slices.

use cuda_core::Device;
use support::{Staged, one_stream};

use super::harness::{first, sweep};

const CHUNK: usize = 1 << 20;

#[test]
fn small_slices() {
    sweep(|| {
        let (_, context) = first()?;
        for stream in [context.create_stream()?, context.default_stream()?] {
            let mut buffer = stream.alloc::<u32>(16)?;
            let mut back = [1; 16];
            stream.upload(&[5; 16], &mut buffer)?;
            let down = stream.download(&buffer, &mut back);
            // After a failure the slice is unchanged.
            assert_eq!(back, if down.is_ok() { [5; 16] } else { [1; 16] });
            down?;
            stream.upload(&[6; 8], buffer.slice_mut(8..)?)?;
            stream.download(buffer.slice(4..12)?, &mut back[..8])?;
            assert_eq!(back[..8], [5, 5, 5, 5, 6, 6, 6, 6]);
        }
        Ok(())
    });
}

#[test]
fn rows() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut image = context.alloc_pitched::<u32>(4, 2)?;
        stream.upload_pitched(&[5; 8], image.pitched_mut()?)?;
        let mut back = [1; 8];
        let down = stream.download_pitched(image.pitched()?, &mut back);
        assert_eq!(back, if down.is_ok() { [5; 8] } else { [1; 8] }, "unchanged after a failure");
        down?;
        Ok(image.close()?)
    });
}

#[test]
fn on_the_per_thread_stream() {
    sweep(|| {
        let (context, home) = one_stream()?;
        let stream = context.per_thread_stream()?;
        let mut buffer = home.alloc::<u32>(16)?;
        stream.upload(&[5; 16], &mut buffer)?;
        let mut back = [1; 16];
        home.download(&buffer, &mut back)?;
        assert_eq!(back, [5; 16]);
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [5; 16]);
        Ok(())
    });
}

#[test]
fn scopes() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let mut a = stream.alloc::<u32>(4)?;
        let mut b = stream.alloc_zeroed::<u64>(2)?;
        stream.upload(&[1, 2, 3, 4], &mut a)?;
        let (mut x, mut y) = ([9; 4], [9; 2]);
        let done = stream.scope(|scope| {
            scope.download(&a, &mut x)?;
            scope.download(&b, &mut y)
        });
        let expected = if done.is_ok() { ([1, 2, 3, 4], [0; 2]) } else { ([9; 4], [9; 2]) };
        assert_eq!((x, y), expected);
        done?;
        stream.fill_bytes(&mut b, 1)?;
        // A scope that ends early does not wait, and keeps its chunk until it is idle.
        let left = stream.scope(|scope| {
            scope.download(&b, &mut y)?;
            Err::<(), _>(cuda_core::Error::ContextInUse)
        });
        assert!(left.is_err());
        assert_eq!(y, [0; 2]);
        Ok(())
    });
}

#[test]
fn chunks_of_a_lost_stream() {
    sweep(|| {
        let (_, context) = first()?;
        for _ in 0..2 {
            // Each stream is dropped while a copy still has to read its chunk.
            let stream = context.create_stream()?;
            let mut buffer = stream.alloc::<u8>(CHUNK / 4)?;
            for value in 0..3 {
                stream.upload(&[value; CHUNK / 4], &mut buffer)?;
            }
        }
        cuda_core::staging::trim().map(drop)
    });
}

/// Copies a slice of more chunks than a copy may use at once, in chunks of the smallest size.
fn large(threads: usize) -> cuda_core::Result<()> {
    const SMALL: usize = 4 << 10;
    const LEN: usize = 10 * SMALL + 3;
    let _staged = Staged::by(threads, SMALL)?;
    let stream = Device::get(0)?.create_stream()?;
    let other = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(LEN)?;
    let slice = vec![7; LEN];
    stream.upload(&slice, &mut buffer)?;
    let mut back = vec![1; LEN];
    let down = other.download(&buffer, &mut back);
    // After a failure a part may have arrived, and nothing else.
    let seen = |byte: &u8| *byte == 7 || (down.is_err() && *byte == 1);
    assert!(back == slice || back.iter().all(seen), "the slice came back changed");
    down?;
    back.fill(1);
    let scope = stream.scope(|scope| scope.download(&buffer, &mut back));
    assert!(back == if scope.is_ok() { slice } else { vec![1; LEN] });
    scope
}

#[test]
#[cfg_attr(miri, ignore = "copies over and over what `staged_large` copies once")]
fn large_slices() {
    sweep(|| large(0));
}

#[test]
#[cfg_attr(miri, ignore = "as `large_slices`, its threads are tested by a test of their own")]
fn large_slices_with_help() {
    sweep(|| large(2));
}
