//! Which driver this process tests, and how many devices it has.

use std::env;
use std::sync::OnceLock;

use cuda_core::{
    Allocator, CachingPool, pinned::PinnedBackend, set_default_allocator, with_allocator,
};
use cuda_sim::{Config, Mode, Session};
use cuda_sys::{CUresult, cuDeviceGetCount, cuInit};

/// Number of devices of the simulated driver, unless the environment sets one.
const DEFAULT_SIMULATED_DEVICES: u32 = 4;

/// The driver that the tests of this process use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The simulated driver, linked into the test: `CUDA_TESTS_SIM=<devices>`, or Miri.
    Simulated {
        /// Devices that it shows.
        devices: u32,
    },
    /// The driver that `cuda-sys` loads; `CUDA_SYS_LIBRARY` is honoured.
    Loaded,
}

impl Driver {
    /// Returns the driver that the environment selects.
    ///
    /// # Panics
    /// If `CUDA_TESTS_SIM` is not a number of devices.
    pub fn selected() -> Self {
        match env::var("CUDA_TESTS_SIM") {
            Ok(devices) => match devices.parse() {
                Ok(devices) => Self::Simulated { devices },
                Err(_) => panic!("CUDA_TESTS_SIM={devices}: not a number of devices"),
            },
            Err(_) if cfg!(miri) => Self::Simulated { devices: DEFAULT_SIMULATED_DEVICES },
            Err(_) => Self::Loaded,
        }
    }
}

/// Panics with the call's name unless the driver returned success.
///
/// # Panics
/// See above.
#[track_caller]
pub fn check(call: &str, result: CUresult) {
    assert!(result == cuda_sys::CUDA_SUCCESS, "{call}: the driver returned {}", result.0);
}

/// Begins a session of the simulated driver, which becomes this process's driver at the first call:
/// `CUDA_TESTS_SIM` devices, four by default, in the mode that `CUDA_SIM_MODE` names.
///
/// Pinned memory comes from the driver itself, so that the session sees each allocation;
/// [`run`](crate::run()) and the tests of the cache ask for slabs. Device memory comes from the
/// driver's pool for the same reason, and from the caching pool in [`run`](crate::run()) and where
/// a test asks for it.
///
/// # Panics
/// If the process has another driver already.
pub fn simulator() -> Session {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let devices = match Driver::selected() {
            Driver::Simulated { devices } => devices,
            Driver::Loaded => DEFAULT_SIMULATED_DEVICES,
        };
        if let Err(error) = cuda_sim::install(Config::from_env().devices(devices)) {
            panic!("the simulated driver: {error}");
        }
        // SAFETY: the simulated NCCL is linked with this program, and its functions have the signatures
        // of `nccl.h`.
        if let Err(error) = unsafe { cuda_core::nccl::install(cuda_sim::symbol) } {
            panic!("the simulated NCCL: {error}");
        }
    });
    let session = Session::begin();
    cuda_core::PinnedPool::set_backend(PinnedBackend::Driver);
    choose_allocator(&Allocator::driver_pool());
    session
}

/// Calls [`simulator`] and sets the session's mode.
///
/// # Panics
/// As [`simulator`].
pub fn simulator_in(mode: Mode) -> Session {
    let session = simulator();
    session.set_mode(mode);
    session
}

/// Trims the process's caching pool.
///
/// # Errors
/// The driver's.
pub fn trim_cache(session: &Session) -> cuda_core::Result<()> {
    trim(session, || CachingPool::shared()?.trim(0))
}

/// Trims a cache by calls of `f`: the one that asks whether blocks are idle may report "not ready" at first.
pub(crate) fn trim<T>(
    session: &Session,
    f: impl Fn() -> cuda_core::Result<T>,
) -> cuda_core::Result<()> {
    const POLLS: u32 = 4;
    (0..POLLS).try_for_each(|_| {
        session.settle();
        f().map(drop)
    })
}

/// Makes the allocator the default of the process.
pub(crate) fn choose_allocator(allocator: &Allocator) {
    set_default_allocator(allocator).expect("no scope surrounds a test");
}

/// Returns the allocator that `CUDA_CORE_ALLOCATOR` names.
pub(crate) fn allocator_of_environment() -> Allocator {
    match env::var("CUDA_CORE_ALLOCATOR").as_deref() {
        Ok("driver") => Allocator::driver_pool(),
        Ok("plain") => Allocator::plain(),
        _ => Allocator::cache(),
    }
}

/// Runs `f`, which allocates memory that is freed while a stream is stalled. Uses the caching pool if the
/// environment names an allocator whose frees wait for the device.
pub fn freed_behind_a_stall<R>(f: impl FnOnce() -> R) -> R {
    match env::var("CUDA_CORE_ALLOCATOR").as_deref() {
        Ok("plain") => with_allocator(&Allocator::cache(), f),
        _ => f(),
    }
}

/// Initialises the driver and fails the test unless it shows at least `needs` devices.
pub(crate) fn require_devices(needs: u32) {
    if let Err(error) = cuda_sys::load() {
        panic!("needs {needs} devices: {error}");
    }
    // SAFETY: `cuInit` takes no pointer and may be called at any time, repeatedly.
    check("cuInit", unsafe { cuInit(0) });
    let mut count = 0;
    // SAFETY: `count` is valid for the one `int` that the driver writes.
    check("cuDeviceGetCount", unsafe { cuDeviceGetCount(&mut count) });
    assert!(
        u32::try_from(count).is_ok_and(|count| count >= needs),
        "needs {needs} devices, the driver shows {count}"
    );
}
