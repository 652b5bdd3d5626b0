//! M13: the process ends while a thread copies a slice whose page does not come.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuda_core::{Device, Result};
use support::{child, gpu_test};

/// The length of the slice.
const LEN: usize = 400 << 10;

/// Whether a thread waits for a page.
static STALLED: AtomicBool = AtomicBool::new(false);

/// The handler of a thread that accesses a page without permission. It does not return, so that the page seems
/// to be one that the system cannot fetch.
extern "C" fn never_come(_signal: c_int) {
    STALLED.store(true, Ordering::Release);
    loop {
        // SAFETY: may be called in a handler.
        unsafe { libc::pause() };
    }
}

gpu_test! {
    needs 1;
    fn m13_process_exit_while_a_page_of_a_slice_does_not_come() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let (access, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps new memory, at an address that the system chooses.
        let pages = unsafe { libc::mmap(ptr::null_mut(), LEN, access, kind, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        // SAFETY: the handler calls nothing but what handlers may call.
        unsafe { libc::signal(libc::SIGSEGV, never_come as *const () as libc::sighandler_t) };
        // SAFETY: the bytes stay mapped, and a thread that reads them gets no further.
        let slice = unsafe { std::slice::from_raw_parts(pages.cast::<u8>(), LEN) };
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        thread::spawn(move || stream.upload(slice, &mut buffer));
        while !STALLED.load(Ordering::Acquire) {
            thread::yield_now();
        }
        child::done();
        std::process::exit(0);
    }
}
