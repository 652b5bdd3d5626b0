//! A driver that does nothing and returns at once. A switch sets whether its work is pending or done.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use anyhow::Context as _;
use cuda_sys::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult};

/// Whether enqueued work is pending.
pub(super) static PENDING: AtomicBool = AtomicBool::new(true);

static HANDLES: AtomicUsize = AtomicUsize::new(1 << 20);
static MEMORY: AtomicU64 = AtomicU64::new(0x7000_0000_0000);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Fills the function table of this process.
pub(super) fn install() -> anyhow::Result<()> {
    // SAFETY: each function below has the parameters that CUDA's reference gives for its name. All others
    // ignore their parameters, which the platforms' calling conventions permit, and return success without an
    // output that the modes read.
    unsafe { cuda_sys::install(function) }.context("installing the driver that does nothing")
}

fn function(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cuCtxSetCurrent" => set_current as _,
        b"cuEventQuery" | b"cuStreamQuery" => query as _,
        name => answer(name).unwrap_or(succeed as _),
    }
}

extern "C" fn succeed() -> CUresult {
    CUDA_SUCCESS
}

/// Defines functions that only write one output, through the first argument.
macro_rules! answers {
    ($($call:literal($to:ty $(, $rest:tt: $of:ty)*) = $value:expr;)*) => {
        fn answer(name: &[u8]) -> Option<*const c_void> {
            match name {
                $($call => {
                    unsafe extern "C" fn answer(to: *mut $to $(, $rest: $of)*) -> CUresult {
                        let value = $value;
                        // SAFETY: the caller passes the output that CUDA's reference requires.
                        unsafe { to.write(value) };
                        CUDA_SUCCESS
                    }
                    Some(answer as _)
                })*
                _ => None,
            }
        }
    };
}

answers! {
    b"cuDriverGetVersion"(c_int) = 13_000;
    b"cuDeviceGetCount"(c_int) = 1;
    b"cuDeviceGet"(c_int, _: c_int) = 0;
    b"cuDeviceGetName"(c_char, _: c_int, _: c_int) = 0;
    b"cuDeviceGetAttribute"(c_int, _: c_int, _: c_int) = 1;
    b"cuDeviceTotalMem_v2"(usize, _: c_int) = 1 << 40;
    b"cuDevicePrimaryCtxRetain"(usize, _: c_int) = 0x1000;
    b"cuCtxGetCurrent"(usize) = CURRENT.get();
    b"cuStreamCreateWithPriority"(usize, _: c_uint, _: c_int) = HANDLES.fetch_add(64, Relaxed);
    b"cuEventCreate"(usize, _: c_uint) = HANDLES.fetch_add(64, Relaxed);
    b"cuMemAlloc_v2"(u64, bytes: usize) =
        MEMORY.fetch_add(bytes.next_multiple_of(2 << 20) as u64, Relaxed);
    b"cuMemHostAlloc"(*mut u8, bytes: usize, _: c_uint) = host_memory(bytes);
}

extern "C" fn set_current(context: usize) -> CUresult {
    CURRENT.set(context);
    CUDA_SUCCESS
}

extern "C" fn query(_: usize) -> CUresult {
    if PENDING.load(Relaxed) { CUDA_ERROR_NOT_READY } else { CUDA_SUCCESS }
}

/// Allocates host memory, which is never freed: the process ends soon.
fn host_memory(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes, 4096).ok();
    layout.filter(|layout| layout.size() > 0).map_or(ptr::null_mut(), |layout| {
        // SAFETY: the size is not zero.
        unsafe { alloc::alloc_zeroed(layout) }
    })
}
