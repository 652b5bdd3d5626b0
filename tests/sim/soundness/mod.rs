//! The hazards of the soundness table, each attempted from safe code, with work done as late as CUDA permits:
//! unordered work then uses stale or freed data, and the simulated driver reports it.

mod arrays;
mod attacks;
mod captures;
mod changed;
mod conditions;
mod contexts;
mod deferred;
mod elsewhere;
mod forgotten;
#[cfg(all(unix, not(miri)))]
mod forks;
mod graph_contexts;
mod graph_waits;
mod graphs;
mod guards;
mod host_functions;
mod inputs;
mod kept;
mod launches;
mod ledger;
mod leftovers;
mod lifetimes;
mod looks;
mod lost_ranks;
mod managed;
mod many;
mod memory;
mod nccl;
mod order;
mod overtaken;
mod peers;
mod per_thread;
mod registered;
mod signals;
mod staged;
mod timelines;
mod unbound;
mod virtual_memory;

use std::panic::resume_unwind;
use std::thread;

use cuda_core::{Context, Device, PinnedBuffer, Pod, Result};
use cuda_sim::{Mode, Session};
use support::Watchdog;

/// Runs `body` on its own thread, without a current context, then asserts that the driver saw no misuse, that
/// nothing is left and that no `Drop` failed.
fn clean(body: impl FnOnce(&Session) -> Result<()> + Send) {
    let session = lazily(body);
    session.assert_clean();
}

/// Like [`clean`], for a body that leaks on purpose.
fn leaking(body: impl FnOnce(&Session) -> Result<()> + Send) {
    let session = lazily(body);
    assert_eq!(session.violations(), []);
}

fn lazily(body: impl FnOnce(&Session) -> Result<()> + Send) -> Session {
    let session = support::simulator_in(Mode::Lazy);
    let failures = cuda_core::drops::failures();
    within(|| {
        body(&session).expect("no operation of the test fails");
    });
    cuda_core::drops::flush();
    session.settle();
    cuda_core::staging::trim().expect("idle chunks can be freed");
    assert_eq!(cuda_core::drops::failures(), failures, "a drop failed");
    session
}

/// Runs `body` on another thread, and ends the process if it does not return: a thread that waits in the
/// driver cannot be stopped.
fn within(body: impl FnOnce() + Send) {
    let _watchdog = Watchdog::start(thread::current().name().unwrap_or_default());
    let ended = thread::scope(|scope| scope.spawn(body).join());
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

fn device() -> Device {
    Device::get(0).expect("the simulated driver has devices")
}

fn primary() -> Context {
    device().context().expect("it has a primary context")
}

fn pinned<T: Pod>(elements: &[T]) -> Result<PinnedBuffer<T>> {
    PinnedBuffer::from_slice(&primary(), elements)
}
