//! Shorthands for raw driver calls that the tests make.

use std::env;
use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Once;

use cuda_sim::{Config, Session};
use cuda_sys::*;

/// Returns a command that runs one test of this program in a process of its own.
pub(crate) fn again(test: &str) -> Command {
    let mut program = Command::new(env::current_exe().expect("this program has a path"));
    program.args(["--exact", test, "--nocapture"]);
    program
}

/// Starts a session on the simulated driver, with no context current on this thread.
pub(crate) fn begin() -> Session {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // The missing symbol makes the driver as old as that.
        let config = Config::default().memory(1 << 30).quarantine(2).missing(["cuProfilerStart"]);
        cuda_sim::install(config).expect("no driver yet");
        assert_eq!(call!(cuInit(0)), CUDA_SUCCESS);
    });
    let session = Session::begin();
    while call!(cuCtxPopCurrent_v2(null_mut())) == CUDA_SUCCESS {}
    session
}

/// Calls a driver function and returns its code.
macro_rules! call {
    ($function:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the tests pass places for results, handles of the simulator, and memory that
        // lives until the work on it is done; where they misuse a call on purpose, the simulator
        // must survive and report it.
        #[allow(clippy::macro_metavars_in_unsafe, reason = "a test's shorthand")]
        unsafe { cuda_sys::symbol::$function($($arg),*) }
    }};
}

/// Calls a driver function that must succeed.
macro_rules! ok {
    ($function:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(call!($function($($arg),*)), cuda_sys::CUDA_SUCCESS, stringify!($function))
    };
}

/// Calls a driver function that must return this code.
macro_rules! fails {
    ($code:expr, $function:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(call!($function($($arg),*)), $code, stringify!($function))
    };
}

pub(crate) use {call, fails, ok};

pub(crate) fn primary(device: CUdevice) -> CUcontext {
    let mut context = null_mut();
    ok!(cuDevicePrimaryCtxRetain(&mut context, device));
    context
}

/// Makes a device's primary context current.
pub(crate) fn bind(device: CUdevice) -> CUcontext {
    let context = primary(device);
    ok!(cuCtxSetCurrent(context));
    context
}

pub(crate) fn current() -> CUcontext {
    let mut context = null_mut();
    ok!(cuCtxGetCurrent(&mut context));
    context
}

/// Creates a non-blocking stream.
pub(crate) fn stream() -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

/// Runs `body` with `N` streams of device 0 and a block of `bytes`, releases them, and asserts that
/// the session found nothing but what `body` took out.
pub(crate) fn scene<const N: usize>(
    bytes: usize,
    body: impl FnOnce(&Session, [CUstream; N], CUdeviceptr),
) {
    let session = begin();
    bind(0);
    let (streams, block) = ([(); N].map(|()| stream()), alloc(bytes));
    body(&session, streams, block);
    ok!(cuMemFree_v2(block));
    for stream in streams {
        ok!(cuStreamDestroy_v2(stream));
    }
    session.assert_clean();
}

pub(crate) fn event() -> CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&mut event, 0));
    event
}

pub(crate) fn alloc(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

pub(crate) fn alloc_async(bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocAsync(&mut address, bytes, stream));
    address
}

/// Pinned memory, freed when dropped.
pub(crate) struct Pinned(pub(crate) *mut c_void, usize);

impl Pinned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut pointer = null_mut();
        ok!(cuMemHostAlloc(&mut pointer, bytes.len(), 0));
        // SAFETY: as many bytes were just allocated.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
        Self(pointer, bytes.len())
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        // SAFETY: initialised by `new`; the tests read while no work on it runs.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), self.1) }.to_vec()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        call!(cuMemFreeHost(self.0));
    }
}

/// Removes the violations so far and returns their kinds.
pub(crate) fn violations(session: &Session) -> Vec<cuda_sim::ViolationKind> {
    session.take_violations().into_iter().map(|violation| violation.kind).collect()
}
