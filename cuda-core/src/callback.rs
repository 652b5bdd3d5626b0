//! Host functions: closures that a stream runs between its other work.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_sys::symbol as cu;

use crate::driver::CallbackScope;
use crate::drops::{self, Resource};
use crate::error::Result;
use crate::stream::{Kind, Stream};

type HostFunction = Box<dyn FnOnce() + Send>;

impl<K: Kind> Stream<K> {
    /// Runs `f` on a thread of the driver's when everything enqueued so far has completed; work
    /// enqueued later waits for it: `cuLaunchHostFunc`, after a [checkpoint](Stream::checkpoint).
    ///
    /// CUDA cannot be called from `f`: operations of this crate return
    /// [`Error::InCallback`](crate::Error::InCallback), and values dropped there are dropped on
    /// another thread. A panic is caught and told to the hook of
    /// [`set_drop_hook`](crate::set_drop_hook). If the context is lost, the driver never calls `f`,
    /// which is then leaked.
    ///
    /// # Errors
    /// The driver's, or that this is a host function itself; `f` has then been dropped.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// stream.launch_host_func(|| println!("everything before this is done"))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn launch_host_func(&self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        let core = self.core();
        let stream = core.bind()?;
        // What was enqueued before must not be covered only by an event behind `f`, which may take
        // any time: a stream that waits for it could be the one that `f` waits for.
        core.timeline().checkpoint(true, stream.entered())?;
        let function: Box<HostFunction> = Box::new(Box::new(f));
        let data = Box::into_raw(function);
        let (_, launched) = stream.enqueue("cuLaunchHostFunc", |stream| {
            // SAFETY: `run` has the type that the driver calls and takes the box back the one time
            // that it is called.
            unsafe { cu::cuLaunchHostFunc(stream, Some(run), data.cast()) }
        });
        if launched.is_err() {
            // SAFETY: the driver refused the function and will not call it, so the box is still
            // ours.
            drop(unsafe { Box::from_raw(data) });
        }
        launched
    }
}

unsafe extern "C" fn run(data: *mut c_void) {
    let scope = CallbackScope::enter();
    // SAFETY: the pointer comes from `Box::into_raw` above, and the driver calls this once.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    // A panic must not unwind into C. The payload's own drop may panic too; what comes of that is
    // leaked, since it could go on for ever.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(*function)) {
        if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            std::mem::forget(second);
        }
        drops::report(Resource::HostFunction, 0, 0, None);
    }
    drop(scope);
}
