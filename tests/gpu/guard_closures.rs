//! Guards that enclose a closure.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use cuda_core::{Error, Result};
use support::{context, gpu_test};

use crate::guards::device;
use crate::stack;

gpu_test! {
    needs 2;
    fn a01_guard_as_a_closure() -> Result<()> {
        let (_, p0) = device(0)?;
        let (d1, p1) = device(1)?;
        stack::with(p0, || {
            let ordinal = d1.with(|context| {
                assert_eq!(context::current(), p1);
                Ok(context.device().ordinal())
            })?;
            assert_eq!((ordinal, context::current()), (1, p0));

            let failed = d1.with(|_| Err::<(), _>(Error::ContextInUse));
            assert!(matches!(failed, Err(Error::ContextInUse)), "{failed:?}");
            assert_eq!(context::current(), p0);

            let context = d1.context()?;
            let caught = catch_unwind(AssertUnwindSafe(|| {
                context.with(|_| -> Result<()> { panic_any(7_u8) })
            }));
            let payload = caught.expect_err("the closure panics");
            assert_eq!(payload.downcast_ref(), Some(&7_u8));
            assert_eq!(context::current(), p0);
            Ok(())
        })
    }
}
