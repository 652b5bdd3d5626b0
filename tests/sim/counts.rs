//! Driver calls per operation: how many, and which.
//!
//! The expected names are all of the operation's driver calls. Each expectation also checks that
//! the thread's context stack is unchanged.

mod arrays;
mod asynchronous;
mod copies;
mod graphs;
mod guards;
mod launches;
mod many;
mod memory;
mod nccl;
mod ordering;
mod staged;
mod streams;
mod tensors;
mod transfers;
mod virtual_memory;

use cuda_core::{Context, Device, Result, Stream};
use cuda_sim::{Mode, Session};

use crate::faults::stack;

const GET: &str = "cuCtxGetCurrent";
const EXCHANGE: &str = "cuThreadExchangeStreamCaptureMode";
const SET: &str = "cuCtxSetCurrent";

const UPLOAD: &str = "cuMemcpyHtoDAsync_v2";
const DOWNLOAD: &str = "cuMemcpyDtoHAsync_v2";
const COPY: &str = "cuMemcpyDtoDAsync_v2";
const PEER_COPY: &str = "cuMemcpyPeerAsync";
const ALLOC: &str = "cuMemAllocAsync";
const FREE: &str = "cuMemFreeAsync";
const RECORD: &str = "cuEventRecord";
const WAIT: &str = "cuStreamWaitEvent";
const SYNC: &str = "cuStreamSynchronize";
/// Called before work of a stream that other code can capture: a default stream, a foreign stream, or a
/// stream whose handle was handed out.
const ASK: &str = "cuStreamIsCapturing";

/// A session that counts calls, on a thread without a current context.
struct Counted {
    session: Session,
}

impl Counted {
    /// Runs `test` on its own thread, and asserts at the end that it left nothing behind.
    fn run(test: fn(&Counted) -> Result<()>) {
        let counted = Self { session: support::simulator() };
        // In this mode work never completes early, which would save calls.
        counted.session.set_mode(Mode::Lazy);
        std::thread::scope(|scope| {
            let result = scope.spawn(|| {
                // Calls made once per process are not counted.
                for device in Device::all()? {
                    device.context()?;
                }
                cuda_core::staging::trim()?;
                test(&counted)
            });
            match result.join() {
                Ok(result) => result.expect("no fault was injected"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        counted.session.settle();
        // A thread of the library frees memory of graphs.
        cuda_core::drops::flush();
        cuda_core::staging::trim().expect("no fault was injected");
        counted.session.assert_clean();
    }

    /// Runs `operation`, and asserts which calls it made, and that the context stack did not change.
    #[track_caller]
    fn expect<R, N>(&self, calls: N, operation: impl FnOnce() -> R) -> R
    where
        N: IntoIterator<Item = &'static str>,
    {
        let before = stack::snapshot();
        let mark = self.session.mark();
        let result = operation();
        let names = self.session.names_since(mark);
        assert_eq!(names, calls.into_iter().collect::<Vec<_>>());
        assert_eq!(stack::snapshot(), before, "the context stack changed");
        result
    }

    /// Runs an `operation` that is refused, and asserts that it made no driver call.
    #[track_caller]
    fn refused<R, E>(&self, operation: impl FnOnce() -> Result<R, E>) {
        let mark = self.session.mark();
        assert!(operation().is_err(), "the operation was not refused");
        assert_eq!(self.session.names_since(mark), [""; 0]);
    }
}

/// The calls around one that CUDA forbids during captures by other code: the library makes the thread's
/// capture mode relaxed.
fn relaxed(call: &'static str) -> [&'static str; 3] {
    [EXCHANGE, call, EXCHANGE]
}

/// The calls of an operation that needs its context current, if it is not. At its end the operation knows
/// what is current, and does not ask.
fn entered<const N: usize>(calls: [&'static str; N]) -> Vec<&'static str> {
    [&[GET, SET], &calls[..], &[SET]].concat()
}

/// The calls of a [relaxed] allocation, and of its free.
fn allocated_and_freed() -> [&'static str; 6] {
    [EXCHANGE, ALLOC, EXCHANGE, EXCHANGE, FREE, EXCHANGE]
}

/// Returns device 0's context and two created streams that have their ordering events already.
fn two_streams() -> Result<(Context, Stream, Stream)> {
    let (context, a, b) = support::two_streams()?;
    warm(&a)?;
    warm(&b)?;
    Ok((context, a, b))
}

/// Makes the stream record its first event, and waits until it completes.
fn warm(stream: &Stream) -> Result<()> {
    drop(stream.alloc::<u8>(1)?);
    stream.checkpoint()?;
    stream.synchronize()
}
