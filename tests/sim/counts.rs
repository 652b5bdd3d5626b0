//! Driver calls per operation: how many, and which.
//!
//! The expected names are the whole of what the operation asked of the driver. Each expectation
//! also checks that the thread's context stack is what it was.

mod arrays;
mod asynchronous;
mod copies;
mod guards;
mod launches;
mod many;
mod memory;
mod ordering;
mod staged;
mod streams;
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
/// Before work of a stream that other code can capture: a default one, one that other code made, and
/// one whose handle was given away.
const ASK: &str = "cuStreamIsCapturing";

/// A session in which operations are counted, on a thread where nothing is current.
struct Counted {
    session: Session,
}

impl Counted {
    /// Runs `test` on a thread of its own, and asserts in the end that it left nothing behind.
    fn run(test: fn(&Counted) -> Result<()>) {
        let counted = Self {
            session: support::simulator(),
        };
        // What is done already costs less to wait for.
        counted.session.set_mode(Mode::Lazy);
        std::thread::scope(|scope| {
            let result = scope.spawn(|| {
                // What is done once a process is not counted.
                for device in Device::all()? {
                    device.context()?;
                }
                cuda_core::trim_staging()?;
                test(&counted)
            });
            match result.join() {
                Ok(result) => result.expect("no fault was injected"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        counted.session.settle();
        cuda_core::trim_staging().expect("no fault was injected");
        counted.session.assert_clean();
    }

    /// Runs `operation` and asserts which calls it made, and that the context stack did not change.
    #[track_caller]
    fn expect<R, N>(&self, calls: N, operation: impl FnOnce() -> Result<R>) -> Result<R>
    where
        N: IntoIterator<Item = &'static str>,
    {
        let before = stack::snapshot();
        let mark = self.session.mark();
        let result = operation()?;
        let names = self.session.names_since(mark);
        assert_eq!(names, calls.into_iter().collect::<Vec<_>>());
        assert_eq!(stack::snapshot(), before, "the context stack changed");
        Ok(result)
    }

    /// Runs an `operation` that is refused, and asserts that the driver was not asked.
    #[track_caller]
    fn refused<R>(&self, operation: impl FnOnce() -> Result<R>) {
        let mark = self.session.mark();
        assert!(operation().is_err(), "the operation was not refused");
        assert_eq!(self.session.names_since(mark), [""; 0]);
    }
}

/// A call that CUDA holds against captures of any stream, on any thread, which are no business of this
/// crate's.
fn relaxed(call: &'static str) -> [&'static str; 3] {
    [EXCHANGE, call, EXCHANGE]
}

/// The calls of an operation that needs its context current, where it is not. What is current at
/// the end of such an operation is known, and not asked for.
fn entered<const N: usize>(calls: [&'static str; N]) -> Vec<&'static str> {
    [&[GET, SET], &calls[..], &[SET]].concat()
}

/// A [relaxed] allocation, and the free of it.
fn allocated_and_freed() -> [&'static str; 6] {
    [EXCHANGE, ALLOC, EXCHANGE, EXCHANGE, FREE, EXCHANGE]
}

/// Device 0, its context and two created streams whose ordering events exist already.
fn two_streams() -> Result<(Context, Stream, Stream)> {
    let context = Device::get(0)?.context()?;
    let (a, b) = (context.create_stream()?, context.create_stream()?);
    warm(&a)?;
    warm(&b)?;
    Ok((context, a, b))
}

/// Makes the stream record its first event, and lets that complete.
fn warm(stream: &Stream) -> Result<()> {
    drop(stream.alloc::<u8>(1)?);
    stream.checkpoint()?;
    stream.synchronize()
}
