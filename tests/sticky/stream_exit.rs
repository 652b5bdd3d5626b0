//! M13, N06, S35: threads and processes end, or fork, with current streams, pools of streams and signals
//! alive.

use std::sync::Mutex;

use cuda_core::{
    Context, ContextFlags, Device, Error, Result, Signal, Stream, StreamPool, WaitValue,
};
use support::gpu_test;

use support::child;

static POOLS: Mutex<Vec<StreamPool>> = Mutex::new(Vec::new());
static SIGNALS: Mutex<Vec<Signal<u32>>> = Mutex::new(Vec::new());

/// A current stream that only the thread refers to, with work on it.
fn current(context: &Context) -> Result<Stream> {
    let stream = context.create_stream()?;
    stream.set_current()?;
    let mut buffer = stream.alloc::<u8>(1 << 20)?;
    stream.fill(&mut buffer, 1)?;
    Ok(stream)
}

gpu_test! {
    needs 1;
    fn m13_process_exit_with_current_streams() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let device = Device::get(0)?;
        for context in [device.context()?, Context::new(device, ContextFlags::default())?] {
            let stream = current(&context)?;
            let signal = Signal::new(&device.context()?, 0)?;
            stream.write_signal(&signal, 1)?;
            stream.wait_signal(&signal, WaitValue::Eq(1))?;
            SIGNALS.lock().expect("no panic").push(signal);
            let pool = context.stream_builder().build_pool(3)?;
            drop(pool.next_stream().alloc_zeroed::<u8>(100)?);
            POOLS.lock().expect("no panic").push(pool);
        }
        child::done();
        std::process::exit(0);
    }
}

/// The number of the first operation that a forked child is not refused as it should be; 0 if there
/// is none.
#[cfg(unix)]
fn refused(stream: &Stream, signal: Signal<u32>) -> u8 {
    let forked = |error: Option<Error>| matches!(error, Some(Error::Forked));
    // The child has no mapping of the pinned memory.
    let first = signal.get();
    signal.set(9);
    let answers = [
        first == 3 && signal.get() == 3,
        forked(stream.enter().err()),
        forked(stream.set_current().err()),
        forked(stream.context().current_stream().err()),
        forked(stream.driver_id().err()),
        forked(stream.write_signal(&signal, 1).err()),
        forked(stream.wait_signal(&signal, WaitValue::Eq(1)).err()),
        forked(Signal::new(stream.context(), 0u32).err()),
        forked(stream.context().stream_builder().build_pool(1).err()),
    ];
    drop(signal);
    let wrong = answers.iter().position(|answer| !answer);
    wrong.map_or(0, |index| index as u8 + 1)
}

#[cfg(unix)]
gpu_test! {
    needs 1;
    fn s35_fork_with_a_current_stream_and_signals() -> Result<()> {
        let stream = current(&Device::get(0)?.context()?)?;
        let (in_child, in_parent) = (Signal::new(stream.context(), 3u32)?, Signal::new(stream.context(), 3u32)?);
        in_child.set(4);
        // SAFETY: the child asks the library under test, then ends without unwinding or handlers.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            let answer = refused(&stream, in_child);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(answer.into()) };
        }
        let mut status = 0;
        // SAFETY: `pid` is a child of this process that no other code waits for; the pointer is
        // valid.
        let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(waited, pid);
        assert!(libc::WIFEXITED(status), "the child was ended by a signal");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the number of what failed");
        assert_eq!((in_child.get(), in_parent.get()), (4, 3), "the parent's signals are unchanged");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn n06_threads_that_end_with_a_current_stream() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let rounds = if cfg!(miri) { 3 } else { 200 };
        let before = cuda_core::drops::failures();
        for _ in 0..rounds {
            let id = std::thread::scope(|scope| {
                let thread = scope.spawn(|| current(&context).map(|stream| stream.id()));
                thread.join().expect("no destructor panics")
            })?;
            assert_ne!(context.current_stream()?.id(), id);
        }
        assert_eq!(cuda_core::drops::failures(), before);
        Ok(())
    }
}
