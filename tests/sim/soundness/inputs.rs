//! Sizes, alignments, codes: S05, S14, S18, S32.

use cuda_core::{DeviceBuffer, Error, PinnedBuffer, Pod, Result};
use cuda_sys::CUresult;

use super::{clean, device, pinned, primary};

#[track_caller]
fn overflows<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::SizeOverflow { .. })));
}

#[test]
fn s05_sizes_do_not_wrap() {
    clean(|session| {
        let stream = device().create_stream()?;
        let context = primary();
        let mark = session.mark();
        // Modulo the address space, these are no bytes, eight bytes, sixteen bytes.
        overflows(stream.alloc::<u64>(1 << 61));
        overflows(stream.alloc::<u64>((1 << 61) + 1));
        overflows(stream.alloc_zeroed::<u128>((1 << 60) + 1));
        overflows(stream.alloc::<[u8; 1 << 32]>(1 << 32));
        overflows(PinnedBuffer::<u64>::new(&context, (1 << 61) + 1));
        overflows(PinnedBuffer::<u64>::zeroed(&context, 1 << 61));
        // No object has more than `isize::MAX` bytes.
        overflows(stream.alloc::<u8>(usize::MAX));
        overflows(PinnedBuffer::<u8>::new(&context, isize::MAX as usize + 1));
        assert_eq!(session.names_since(mark), [""; 0], "refused before any driver call");
        Ok(())
    });
}

#[test]
fn s05_bounds_do_not_wrap() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u64>(64)?;
        #[track_caller]
        fn outside<T>(result: Result<T>) {
            assert!(matches!(result, Err(Error::OutOfBounds(_))));
        }
        outside(buffer.slice(..65));
        outside(buffer.slice(..=64));
        outside(buffer.slice(..=usize::MAX));
        outside(buffer.slice(usize::MAX..));
        outside(buffer.slice((1 << 61)..(1 << 61) + 1));
        #[allow(clippy::reversed_empty_ranges, reason = "that is the tested case")]
        outside(buffer.slice(2..1));
        outside(buffer.slice_mut(64..=64));
        outside(buffer.split_at_mut(65));
        outside(buffer.slice(32..)?.slice(..33));
        outside(buffer.as_view().split_at(65));
        let nothing = buffer.chunks_mut(0).map(drop);
        assert!(
            matches!(nothing, Err(Error::Invalid(ref it)) if it.reason.contains("a chunk has at least")),
            "{nothing:?}"
        );
        assert_eq!(buffer.chunks(usize::MAX)?.len(), 1);
        assert_eq!(stream.alloc::<u8>(0)?.chunks(3)?.len(), 0);
        outside(pinned(&[0; 4])?.slice(3..5));
        assert_eq!(buffer.slice(64..)?.len(), 0);
        Ok(())
    });
}

#[test]
fn s14_an_unknown_code_is_a_value() {
    clean(|session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        for code in [CUresult(12_345), CUresult(CUresult(0).0.wrapping_sub(1))] {
            session.fail_nth(Some("cuMemsetD32Async"), 1, code);
            let error = stream.fill(&mut buffer, 1).expect_err("the driver refuses");
            assert_eq!(error.code(), Some(code));
            assert!(error.to_string().contains(&code.0.to_string()), "{error}");
            assert!(!error.is_sticky());
        }
        Ok(())
    });
}

/// Makes every operation on zero elements, of any size.
fn on_nothing<T: Pod + PartialEq + std::fmt::Debug>(len: usize, value: T) -> Result<()> {
    let stream = device().create_stream()?;
    let mut buffer: DeviceBuffer<T> = stream.alloc(len)?;
    let mut host = PinnedBuffer::<T>::new(&primary(), len)?;
    assert_ne!(buffer.as_raw(), 0);
    assert!(buffer.as_raw() % align_of::<T>() as u64 == 0);
    assert_eq!((buffer.len(), buffer.byte_len()), (len, 0));
    let elements = host.as_slice()?;
    assert_eq!(elements.len(), len);
    assert!(elements.as_ptr().is_aligned());
    assert_eq!(host.as_mut_slice()?.len(), len);
    stream.upload(&host, &mut buffer)?;
    stream.download(&buffer, &mut host)?;
    stream.fill(&mut buffer, value)?;
    stream.fill(buffer.as_view_mut().cast::<u8>()?, 1)?;
    let mut back = vec![value; len];
    stream.upload(&back, &mut buffer)?;
    stream.download(&buffer, &mut back)?;
    stream.scope(|scope| scope.download(&buffer, &mut back))?;
    let (head, mut tail) = buffer.split_at_mut(len / 2)?;
    stream.copy(head.as_view().slice(..0)?, tail.slice_mut(..0)?)?;
    stream.copy(&stream.alloc::<T>(len)?, &mut buffer)?;
    assert_eq!(buffer.slice(len..)?.as_raw(), buffer.as_raw());
    assert_eq!(host.slice(len / 2..)?.as_slice()?.len(), len - len / 2);
    drop(buffer);
    Ok(host.close()?)
}

#[test]
fn s18_empty_buffers_are_never_null() {
    clean(|_| {
        on_nothing(0, 0_u8)?;
        on_nothing(0, 0_u128)
    });
}

#[test]
fn s18_elements_without_a_size() {
    clean(|_| {
        on_nothing(0, [0_u8; 0])?;
        on_nothing(3, [0_u64; 0])?;
        on_nothing(3, [[0_u8; 4]; 0])
    });
}

macro_rules! aligned {
    ($($name:ident $alignment:literal)*) => {$(
        #[derive(Clone, Copy, PartialEq, Debug)]
        #[repr(C, align($alignment))]
        struct $name([u8; $alignment]);
        // SAFETY: the type has as many bytes as its alignment, so there is no padding.
        unsafe impl Pod for $name {}
    )*};
}

aligned! { To256 256 To512 512 To4096 4096 To8192 8192 }

/// Asserts that all addresses that an allocation lends are aligned for the type.
fn aligned_or_refused<T: Pod>() -> Result<()> {
    let stream = device().create_stream()?;
    match stream.alloc::<T>(3) {
        Ok(buffer) => {
            let address = buffer.slice(1..)?.as_raw();
            assert!(address % align_of::<T>() as u64 == 0);
        }
        Err(error) => assert!(
            matches!(error, Error::Invalid(ref it) if it.reason.contains("elements aligned to"))
        ),
    }
    match PinnedBuffer::<T>::new(&primary(), 3) {
        Ok(buffer) => assert!(buffer.slice(1..)?.as_slice()?.as_ptr().is_aligned()),
        Err(error) => assert!(
            matches!(error, Error::Invalid(ref it) if it.reason.contains("elements aligned to"))
        ),
    }
    Ok(())
}

#[test]
fn s32_alignment_is_honoured_or_refused() {
    clean(|_| {
        aligned_or_refused::<To256>()?;
        aligned_or_refused::<To512>()?;
        aligned_or_refused::<To4096>()?;
        aligned_or_refused::<To8192>()
    });
}

#[test]
fn s32_more_than_an_allocation_guarantees_is_refused() {
    clean(|session| {
        let stream = device().create_stream()?;
        let context = primary();
        let mark = session.mark();
        assert!(
            matches!(stream.alloc::<To512>(1), Err(Error::Invalid(ref it)) if it.reason.contains("elements aligned to"))
        );
        assert!(
            matches!(stream.alloc::<To512>(0), Err(Error::Invalid(ref it)) if it.reason.contains("elements aligned to"))
        );
        let refused = PinnedBuffer::<To8192>::new(&context, 1);
        assert!(
            matches!(refused, Err(Error::Invalid(ref it)) if it.reason.contains("elements aligned to"))
        );
        assert_eq!(session.names_since(mark), [""; 0]);
        Ok(())
    });
}
