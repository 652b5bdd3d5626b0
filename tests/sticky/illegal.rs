//! A kernel stores to an unmapped address: the context is lost, and every call reports it.

use cuda_core::{Allocator, Device, Error, Event, EventFlags, PinnedBuffer, Result};
use support::{gpu_test, kernels};

use support::child;

gpu_test! {
    needs 1, faulting;
    fn m01_illegal_address() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let device = Device::get(0)?;
        let context = device.context()?;
        let (stream, other) = (context.create_stream()?, context.create_stream()?);
        let module = kernels::load(&context)?;
        let store = module.function("store")?;
        let mut buffer = stream.alloc_zeroed::<u32>(16)?;
        let mut target = other.alloc_zeroed::<u32>(16)?;
        let pinned = PinnedBuffer::from_slice(&context, &[1u32; 16])?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let counter = module.global::<u32>("counter")?;
        stream.synchronize()?;
        other.synchronize()?;
        // SAFETY: none: this is the misuse that the test is about. The address belongs to no
        // memory.
        let launched =
            unsafe { stream.kernel(&store).block(1).arg(0x10u64).arg(1u32).uses(&mut buffer).launch() };
        // Where launches block, the launch itself reports the fault.
        let error = launched
            .and_then(|()| stream.synchronize())
            .expect_err("the kernel has faulted");
        assert!(error.is_sticky(), "{error}");
        let code = cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS;
        assert_eq!(error.code(), Some(code), "{error}");
        // From now on, every call that needs the device fails.
        let answers = [
            ("synchronize", stream.synchronize().err()),
            ("another stream", other.synchronize().err()),
            ("upload", other.upload(&pinned, &mut target).err()),
            ("fill", stream.fill(&mut buffer, 1).err()),
            ("alloc", stream.alloc_with::<u8>(&Allocator::driver_pool(), 1 << 20).err()),
            ("create_stream", context.create_stream().err()),
            ("record", event.record(&stream).err()),
            ("context", context.synchronize().err()),
            // SAFETY: the driver refuses the launch.
            ("launch", unsafe { stream.kernel(&store).block(1).arg(0u64).arg(1u32).launch() }.err()),
        ];
        for (what, answer) in &answers {
            let sticky = answer.as_ref().is_some_and(Error::is_sticky);
            assert!(sticky, "{what}: {answer:?}");
        }
        // Device queries still work.
        assert!(!device.name()?.is_empty());
        // None of these drops panics, or waits for work that will never end.
        drop((buffer, target, counter, store, module, event, pinned, stream, other));
        child::done();
        std::process::exit(0);
    }
}
