//! F: pinned host memory.

use cuda_core::{Device, Error, PinnedBuffer, Pod, Result};
use support::{gpu_test, pattern, refusal, stall};

use crate::forms::same;

gpu_test! {
    needs 1;
    fn f01_zero() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let mut empty = PinnedBuffer::<u64>::new(&context, 0)?;
        assert!(empty.is_empty());
        assert_eq!((empty.len(), empty.byte_len()), (0, 0));
        assert!(empty.as_slice()?.as_ptr().is_aligned());
        assert_eq!(empty.as_mut_slice()?, [0; 0]);
        assert_eq!(empty.try_as_slice()?, Some(&[][..]));
        assert!(empty.slice(1..).is_err());
        let (head, tail) = empty.split_at_mut(0)?;
        assert!(head.is_empty() && tail.is_empty());
        assert!(PinnedBuffer::<u8>::from_slice(&context, &[])?.is_empty());
        // Two empty buffers share no memory that a close could free twice.
        let other = PinnedBuffer::<u64>::zeroed(&context, 0)?;
        empty.close()?;
        Ok(other.close()?)
    }
}

gpu_test! {
    needs 1;
    fn f01_sizes() -> Result<()> {
        let context = Device::get(0)?.context()?;
        for len in [1, 3, 4095, 4096, 4097, 1 << 20] {
            let mut buffer = PinnedBuffer::<u8>::zeroed(&context, len)?;
            same(buffer.as_slice()?, &vec![0; len], "zeroed");
            buffer.as_mut_slice()?[len - 1] = 9;
            assert_eq!(buffer.as_slice()?[len - 1], 9);
        }
        let values = [1.5_f64, -2.0, f64::INFINITY];
        assert_eq!(PinnedBuffer::from_slice(&context, &values)?.as_slice()?, values);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f01_too_large() -> Result<()> {
        #[derive(Clone, Copy)]
        #[repr(align(8192))]
        struct Wide(#[expect(dead_code, reason = "only its size counts")] [u8; 8192]);
        // SAFETY: 8192 bytes without padding, of which any value is valid.
        unsafe impl Pod for Wide {}

        let context = Device::get(0)?.context()?;
        let overflow = PinnedBuffer::<u64>::new(&context, 1 << 61).expect_err("wraps to nothing");
        assert!(matches!(overflow, Error::SizeOverflow { element_size: 8, .. }), "{overflow:?}");
        let aligned = refusal(PinnedBuffer::<Wide>::new(&context, 1));
        assert!(aligned.starts_with("elements aligned to 8192 bytes"), "{aligned}");
        let error = PinnedBuffer::<u8>::new(&context, 1 << 50).expect_err("a pebibyte");
        assert!(error.code().is_some(), "the driver's to refuse: {error:?}");
        // The error does not persist.
        assert_eq!(PinnedBuffer::from_slice(&context, &[1, 2])?.as_slice()?, [1, 2]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f05_double_free() -> Result<()> {
        // Checked by the type: `close` takes the buffer, and returns it only if it is still allocated.
        let context = Device::get(0)?.context()?;
        let buffer = PinnedBuffer::from_slice(&context, &pattern(5, 100))?;
        buffer.close()?;
        let stream = context.create_stream()?;
        let device = stream.alloc::<u8>(100)?;
        device.close()?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 2;
    fn f11_portable() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let source = {
            let _current = here.enter()?;
            PinnedBuffer::from_slice(&here.context()?, &pattern(11, 10_007))?
        };
        let mut target = PinnedBuffer::zeroed(&here.context()?, 10_007)?;
        let stream = there.create_stream()?;
        let mut buffer = stream.alloc::<u8>(10_007)?;
        stream.upload(&source, &mut buffer)?;
        stream.download(&buffer, &mut target)?;
        same(target.as_slice()?, &pattern(11, 10_007), "through the other device");
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn f11_portable_is_asynchronous() -> Result<()> {
        let here = Device::get(0)?.context()?;
        let source = PinnedBuffer::from_slice(&here, &pattern(12, 1 << 20))?;
        let mut target = PinnedBuffer::zeroed(&here, 1 << 20)?;
        let stream = Device::get(1)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(1 << 20)?;
        stream.upload(&source, &mut buffer)?;
        stream.download(&buffer, &mut target)?;
        target.as_mut_slice()?.fill(0);

        let stall = stall(stream.as_raw());
        stream.upload(&source, &mut buffer)?;
        stream.download(&buffer, &mut target)?;
        assert!(target.try_as_slice()?.is_none(), "both returned behind the stall");
        stall.release();
        same(target.as_slice()?, &pattern(12, 1 << 20), "after the stall");
        Ok(())
    }
}
