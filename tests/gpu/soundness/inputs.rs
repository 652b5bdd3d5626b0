//! Sizes and alignments: S05, S18, S32.

use cuda_core::{Error, PinnedBuffer, Pod, Result};
use support::gpu_test;

use super::{device, primary, warm};

gpu_test! {
    needs 1;
    fn s05_sizes_do_not_wrap() -> Result<()> {
        let stream = device()?.create_stream()?;
        for len in [1 << 61, (1 << 61) + 1, usize::MAX] {
            assert!(matches!(stream.alloc::<u64>(len), Err(Error::SizeOverflow { .. })));
            let pinned = PinnedBuffer::<u64>::new(&primary()?, len);
            assert!(matches!(pinned, Err(Error::SizeOverflow { .. })));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s18_elements_without_a_size() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<[u64; 0]>(5)?;
        let mut host = PinnedBuffer::<[u64; 0]>::new(&primary()?, 5)?;
        stream.upload(&host, &mut buffer)?;
        stream.download(&buffer, &mut host)?;
        stream.fill(&mut buffer, [])?;
        stream.upload(&[[]; 5], &mut buffer)?;
        stream.download(&buffer, &mut [[]; 5])?;
        assert_eq!(host.as_slice()?.len(), 5);
        assert_ne!(buffer.as_raw(), 0);
        Ok(())
    }
}

macro_rules! aligned {
    ($($name:ident $alignment:literal)*) => {$(
        #[derive(Clone, Copy)]
        #[repr(C, align($alignment))]
        struct $name([u8; $alignment]);
        // SAFETY: the type has as many bytes as its alignment, so there is no padding.
        unsafe impl Pod for $name {}
    )*};
}

aligned! { To256 256 To512 512 To1024 1024 To4096 4096 }

/// Allocates many blocks of odd sizes in between, so that alignment is not accidental.
fn aligned_or_refused<T: Pod>() -> Result<()> {
    let stream = warm()?;
    let mut kept = Vec::new();
    for round in 0..32 {
        kept.push((
            stream.alloc::<u8>(1 + 7 * round)?,
            PinnedBuffer::<u8>::new(&primary()?, 1 + 7 * round)?,
        ));
        match stream.alloc::<T>(1) {
            Ok(buffer) => assert!(buffer.as_raw() % align_of::<T>() as u64 == 0),
            Err(error) => assert!(
                matches!(error, Error::Invalid(ref it) if it.reason.contains("elements aligned to")),
                "{error}"
            ),
        }
        // Compared as numbers: a misaligned slice must not be created at all.
        match PinnedBuffer::<T>::new(&primary()?, 1) {
            Ok(mut buffer) => {
                let address = buffer.as_mut_slice()?.as_ptr().addr();
                assert!(address % align_of::<T>() == 0, "{address:#x}");
            }
            Err(error) => assert!(
                matches!(error, Error::Invalid(ref it) if it.reason.contains("elements aligned to")),
                "{error}"
            ),
        }
    }
    Ok(())
}

gpu_test! {
    needs 1;
    fn s32_alignment_is_honoured_or_refused() -> Result<()> {
        aligned_or_refused::<To256>()?;
        aligned_or_refused::<To512>()?;
        aligned_or_refused::<To1024>()?;
        aligned_or_refused::<To4096>()
    }
}
