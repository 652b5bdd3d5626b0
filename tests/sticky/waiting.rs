//! M13, S35: the process ends, or forks, while futures wait.

use std::task::Poll;
use std::time::Duration;

use cuda_core::{Device, Error, InFlight, Ready, Result, Stream};
use support::{Alarm, gpu_test, stall};

use support::child;

/// Two futures and an owned copy, all of them pending.
struct Waiting {
    polled: Ready<'static>,
    new: Ready<'static>,
    flight: InFlight<Vec<u8>>,
}

/// Enqueued after a stall on `stream`.
fn wait_for(stream: &Stream) -> Result<Waiting> {
    let mut buffer = stream.alloc::<u8>(4096)?;
    let flight = stream.upload_owned(vec![1; 4096], &mut buffer)?;
    let mut polled = stream.ready();
    assert!(Alarm::new().poll(&mut polled).is_pending());
    let new = stream.ready();
    Ok(Waiting { polled, new, flight })
}

gpu_test! {
    needs 1, asynchronous;
    fn m13_exit_while_futures_wait() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let stream = Device::get(0)?.create_stream()?;
        let stalled = stall(stream.as_raw());
        let Waiting { polled, new, flight } = wait_for(&stream)?;
        stalled.release_after(Duration::from_millis(50));
        // A thread of the library waits for the copy before it drops the owner, as for the future.
        drop(flight);
        std::mem::forget((polled, new));
        child::done();
        std::process::exit(0);
    }
}

#[cfg(unix)]
gpu_test! {
    needs 1, asynchronous;
    fn s35_futures_in_a_forks_child() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let held = stall(stream.as_raw());
        let mut waiting = wait_for(&stream)?;
        support::in_a_fork(|| {
            let alarm = Alarm::new();
            let forked = |polled| matches!(polled, Poll::Ready(Err(Error::Forked)));
            let refused = forked(alarm.poll(&mut waiting.polled))
                && forked(alarm.poll(&mut waiting.new))
                && forked(alarm.poll(&mut stream.ready()))
                && matches!(waiting.flight.is_done(), Err(Error::Forked));
            drop((waiting.polled, waiting.new, waiting.flight));
            u8::from(!refused)
        });
        held.release();
        stream.synchronize()
    }
}
