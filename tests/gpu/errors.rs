//! M: errors and bad input.

use std::sync::mpsc;

use cuda_core::{
    Allocator, Context, Device, DeviceAttribute, Error, Event, EventFlags, PinnedBuffer, Result,
};
use support::{context, gpu_test, stall};

use crate::forms::every_form;

/// An attribute that no driver knows.
const UNKNOWN: DeviceAttribute = cuda_sys::CUdevice_attribute(0x7FFF_0000);

gpu_test! {
    needs 1;
    fn m02_not_sticky() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let unrecorded = Event::new(stream.context(), EventFlags::DEFAULT)?;
        let never = unrecorded.elapsed_since(&unrecorded).expect_err("the driver refuses");
        assert!(!never.is_sticky(), "{never:?}");
        let errors = [
            device.attribute(UNKNOWN).err(),
            stream.alloc_with::<u8>(&Allocator::driver_pool(), 1 << 50).err(),
            Context::pop().err(),
        ];
        for error in errors {
            let error = error.expect("the driver refuses");
            assert!(error.code().is_some() && !error.is_sticky(), "{error:?}");
            // The text names the call and describes what happened.
            let text = error.to_string();
            assert!(text.starts_with("cu") && text.contains(": "), "{text}");
        }
        every_form(&stream, &stream, 100)
    }
}

gpu_test! {
    needs 2;
    fn m02_wrong_device() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (stream, other) = (here.create_stream()?, there.create_stream()?);
        let mut foreign = other.alloc_zeroed::<u8>(8)?;
        let mut host = PinnedBuffer::from_slice(stream.context(), &[1_u8; 8])?;
        let wrong = |result: Result<()>| match result {
            Err(Error::WrongDevice(it)) => assert_eq!((it.memory, it.stream), (1, 0)),
            other => panic!("{other:?}"),
        };
        wrong(stream.upload(&host, &mut foreign));
        wrong(stream.upload(&[1; 8], &mut foreign));
        wrong(stream.fill(&mut foreign, 1));
        wrong(stream.fill_bytes(&mut foreign, 1));
        wrong(stream.download(&foreign, &mut host));
        let mut back = [2; 8];
        wrong(stream.download(&foreign, &mut back));
        wrong(stream.scope(|scope| scope.download(&foreign, &mut back)));
        // Two buffers of another device, which the stream does not belong to.
        let mut second = other.alloc_zeroed::<u8>(8)?;
        wrong(stream.copy(&foreign, &mut second));
        let refused = stream.fill(&mut foreign, 1).expect_err("another device's");
        assert!(refused.to_string().ends_with("; use a stream of device 1"), "{refused}");
        assert_eq!((host.as_slice()?, back), (&[1; 8][..], [2; 8]));
        other.download(&foreign, &mut back)?;
        assert_eq!(back, [0; 8], "nothing was written");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m02_bounds() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u32>(10)?;
        let bounds = |error: Option<Error>| match error {
            Some(Error::OutOfBounds(it)) if it.len == 10 => (it.start, it.end),
            other => panic!("{other:?}"),
        };
        assert_eq!(bounds(buffer.slice(..11).err()), (0, 11));
        assert_eq!(bounds(buffer.slice(11..).err()), (11, 10));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the tested case")]
        let reversed = buffer.slice(5..4).err();
        assert_eq!(bounds(reversed), (5, 4));
        assert_eq!(bounds(buffer.slice(..=usize::MAX).err()), (0, usize::MAX));
        assert_eq!(bounds(buffer.slice_mut(usize::MAX..).err()), (usize::MAX, 10));
        assert_eq!(bounds(buffer.split_at_mut(11).err()), (0, 11));
        let (head, tail) = buffer.split_at_mut(10)?;
        assert_eq!((head.len(), tail.len()), (10, 0));
        assert_eq!(tail.as_raw(), head.as_raw() + 40);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m02_in_a_host_function() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let current = device.context()?;
        let buffer = stream.alloc_zeroed::<u8>(2)?;
        let inner = device.create_stream()?;
        let (answers, results) = mpsc::channel();
        stream.launch_host_func(move || {
            let is = |what, error: Option<Error>| {
                // The receiver waits for all answers.
                let _ = answers.send((what, error));
            };
            is("name", device.name().err());
            is("pci_bus_id", device.pci_bus_id().err());
            is("uuid", device.uuid().err());
            is("total_memory", device.total_memory().err());
            is("attribute", device.compute_capability().err());
            is("get", Device::get(0).err());
            is("context", device.context().err());
            is("guard", device.enter().err());
            is("current", Context::current().err());
            is("create_stream", device.create_stream().err());
            is("synchronize", inner.synchronize().err());
            is("query", inner.query().err());
            is("alloc", inner.alloc::<u8>(1).err());
            is("download", inner.download(&buffer, &mut [0; 2]).err());
            is("pinned", PinnedBuffer::<u8>::new(&current, 1).err());
            is("buffer", buffer.synchronize().err());
            is("trim", cuda_core::staging::trim().err());
            is("version", cuda_core::driver_version().err());
            is("host function", inner.launch_host_func(|| ()).err());
            // This call would wait for the very function that makes it.
            cuda_core::drops::flush();
        })?;
        stream.synchronize()?;
        let mut count = 0;
        for (what, error) in results {
            assert!(matches!(error, Some(Error::InCallback)), "{what}: {error:?}");
            count += 1;
        }
        assert_eq!(count, 19);
        // A thread of the library drops what the function owned.
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn m02_failed_calls_leave_nothing_pending() -> Result<()> {
        let device = Device::get(0)?;
        let (busy, idle) = (device.create_stream()?, device.create_stream()?);
        let mut buffer = idle.alloc_zeroed::<u8>(8)?;
        idle.download(&buffer, &mut [0; 8])?;
        let held = stall(busy.as_raw());
        // Refused before the stream is recorded as a user of the buffer, so no later access waits for it.
        assert!(busy.upload(&[0; 9], &mut buffer).is_err());
        assert!(buffer.slice_mut(..3)?.cast::<u16>().is_err());
        idle.download(&buffer, &mut [0; 8])?;
        buffer.synchronize()?;
        assert!(!busy.query()?);
        held.release();
        busy.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn m_current_unchanged_by_errors() -> Result<()> {
        let foreign = context::Foreign::create(0);
        let stream = Device::get(0)?.create_stream()?;
        let step = |what: &str, expected| assert_eq!(context::current(), expected, "after {what}");
        for expected in [std::ptr::null_mut(), foreign.handle()] {
            if !expected.is_null() {
                context::push(expected);
            }
            assert!(stream.alloc::<u8>(1 << 50).is_err());
            step("alloc", expected);
            let default = stream.context().default_stream()?;
            assert!(default.alloc::<u8>(1 << 50).is_err());
            step("alloc on the default stream", expected);
            assert!(PinnedBuffer::<u8>::new(stream.context(), 1 << 50).is_err());
            step("pinned", expected);
            let interprocess = Event::new(stream.context(), EventFlags::INTERPROCESS);
            assert!(matches!(interprocess, Err(Error::Invalid(_))));
            step("event", expected);
            assert!(stream.context().limit(cuda_sys::CUlimit(0x7FFF)).is_err());
            step("limit", expected);
        }
        assert_eq!(context::pop(), Some(foreign.handle()));
        Ok(())
    }
}
