//! The threads that delete tensors of other libraries.

use std::sync::Mutex;
use std::thread::{self, ThreadId};

use cuda_core::dlpack::DLManagedTensorVersioned;
use cuda_core::{Result, drops};
use support::{gpu_test, one_stream};

use super::{Theirs, count};

static DELETED_BY: Mutex<Option<ThreadId>> = Mutex::new(None);

unsafe extern "C" fn note_thread(tensor: *mut DLManagedTensorVersioned) {
    *DELETED_BY.lock().expect("no panic") = Some(thread::current().id());
    // SAFETY: by the caller's promise, the tensor is live.
    unsafe { count(tensor) };
}

// A deleter may free device memory, which a host function must not do.
gpu_test! {
    needs 1;
    fn s31_a_tensor_that_a_host_function_drops_is_deleted_elsewhere() -> Result<()> {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<u32>(100)?;
        // Lives for ever: if a call fails, the host function may run after the test.
        let theirs = Box::leak(Box::new(Theirs::new::<u32>(memory.as_raw() as usize, &[100])));
        theirs.tensor.deleter = Some(note_thread);
        let tensor = theirs.import(&stream)?;
        let (tell, told) = std::sync::mpsc::channel();
        stream.launch_host_func(move || {
            drop(tensor);
            tell.send(thread::current().id()).expect("the test waits");
        })?;
        stream.synchronize()?;
        drops::flush();
        assert_eq!(theirs.deleted(), 1);
        let called = told.recv().expect("it was called");
        assert_ne!(*DELETED_BY.lock().expect("no panic"), Some(called));
        Ok(())
    }
}
