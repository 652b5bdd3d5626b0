#![doc = include_str!("../README.md")]

mod call;
mod capture;
mod config;
mod context;
mod descriptor;
mod device;
mod engine;
#[allow(non_snake_case, reason = "the driver's own names")]
mod entry;
mod exit;
mod fault;
mod graph;
mod handle;
mod hold;
mod leaks;
mod log;
mod memory;
mod module;
#[allow(non_snake_case, reason = "NCCL's own names")]
mod nccl;
mod origin;
mod report;
mod session;
mod settings;
mod state;
mod table;
mod thread;
mod turn;

use std::ffi::{CStr, c_void};
use std::fmt;

pub use config::{Config, Mode};
pub use engine::element::{ByValue, Element};
pub use engine::kernel::{Arguments, LaunchAttributes, Memory, Region, Trap, register_kernel};
#[doc(hidden)]
pub use engine::kernel::{register_declared_kernel, run_kernel_body};
pub use fault::Fault;
pub use hold::Hold;
pub use log::Call;
pub use origin::Origin;
pub use report::{Leak, LeakKind, Report, Violation, ViolationKind};
pub use session::{Mark, Session};

/// Returns the number of the calling thread, as in [`Call`] and [`Violation`]; never reused.
#[must_use]
pub fn thread_number() -> u64 {
    thread::number()
}

/// Returns the handles of the contexts on the calling thread's stack, from the top down. Not a driver call,
/// so no fault applies to it.
#[must_use]
pub fn context_stack() -> Vec<usize> {
    let state = state::lock();
    let stack = state.stacks.get(&thread::number());
    let entries = stack.into_iter().flatten().rev();
    entries.map(|entry| entry.handle).collect()
}

/// Returns whether any of the present faults has fired. Callbacks that the driver calls may use it, too.
#[must_use]
pub fn fault_fired() -> bool {
    state::lock().log.faults.iter().any(|fault| fault.fired > 0)
}

/// Returns a handle of `bytes` of memory, as another process would export it, for `cuIpcOpenMemHandle_v2`.
#[must_use]
pub fn foreign_memory(bytes: usize) -> [u8; 64] {
    entry::ipc::foreign(bytes)
}

/// Returns the address of a function of the simulated driver or the simulated NCCL, for a program that has no
/// NCCL library to search; null if no function has that name.
#[must_use]
pub fn symbol(name: &CStr) -> *const c_void {
    let missing = state::lock().config.missing.clone();
    entry::resolve(name, &missing)
}

/// The process has a driver already, simulated or real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlreadyInstalled;

impl fmt::Display for AlreadyInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the process has a CUDA driver already: call `install` before the first driver call",
        )
    }
}

impl std::error::Error for AlreadyInstalled {}

/// Makes the simulator this process's driver: every call through `cuda_sys` goes to it.
///
/// Must be called before the first driver call; works once per process.
pub fn install(config: Config) -> Result<(), AlreadyInstalled> {
    let missing = config.missing.clone();
    if !state::initialise(config) {
        return Err(AlreadyInstalled);
    }
    // SAFETY: the addresses are of functions of this crate, which are never unloaded while it runs;
    // `entries!` has each in its table as a function of the type that `cuda_sys` declares.
    let installed = unsafe { cuda_sys::install(|name| entry::resolve(name, &missing)) };
    installed.map_err(|_| AlreadyInstalled)
}
