//! Tests of the support library itself, with the driver under test.

use std::ptr;
use std::time::{Duration, Instant};

use cuda_core::{Device, Result};
use support::{assert_pattern, context, fails_a_call, gpu_test, pattern, stall};

gpu_test! {
    needs 2;
    fn contexts_are_compared_by_handle() {
        assert!(context::current().is_null(), "a test starts with nothing current");
        let a = context::Foreign::create(0);
        let b = context::Foreign::create(0);
        assert_ne!(a.handle(), b.handle(), "two contexts of one device");
        context::push(a.handle());
        context::push(b.handle());
        assert_eq!(context::current(), b.handle());
        assert_eq!(context::pop(), Some(b.handle()));
        assert_eq!(context::pop(), Some(a.handle()));
        assert_eq!(context::pop(), None);
    }
}

gpu_test! {
    needs 1;
    fn a_primary_context_has_one_handle() {
        let handle = context::primary(0);
        assert_ne!(handle, ptr::null_mut());
        assert_eq!(handle, context::primary(0));
    }
}

gpu_test! {
    needs 1;
    fn a_stalled_stream_is_busy_until_released() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let stall = stall(stream.as_raw());
        assert!(!stream.query()?, "the stall holds the stream up");
        stall.release();
        stream.synchronize()?;
        assert!(stream.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_stall_can_be_released_from_another_thread() -> Result<()> {
        let delay = Duration::from_millis(100);
        let stream = Device::get(0)?.create_stream()?;
        let started = Instant::now();
        stall(stream.as_raw()).release_after(delay);
        stream.synchronize()?;
        let waited = started.elapsed();
        assert!(waited >= delay || fails_a_call(), "waited {waited:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_pattern_makes_the_round_trip() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(4097)?;
        stream.upload(&pattern(1, 4097), &mut buffer)?;
        let mut back = vec![0; 4097];
        stream.download(&buffer, &mut back)?;
        assert_pattern(&back, 1);
        Ok(())
    }
}
