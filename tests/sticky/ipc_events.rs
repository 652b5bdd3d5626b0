//! An event that two processes share.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use cuda_core::{Device, Event, EventFlags, Result, interop::IpcEventHandle};
use support::{gpu_test, one_stream, refusal, stall};

/// The handle, in hexadecimal, for the process that opens it.
const HANDLE: &str = "CUDA_TESTS_EVENT";

const PENDING: &str = "the event is pending";
const REACHED: &str = "the event was reached";

fn interprocess() -> EventFlags {
    EventFlags::INTERPROCESS | EventFlags::DISABLE_TIMING
}

fn to_hex(handle: IpcEventHandle) -> String {
    let bytes = handle.to_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> IpcEventHandle {
    let mut bytes = [0; 64];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("two hexadecimal digits");
    }
    IpcEventHandle::from_bytes(bytes)
}

gpu_test! {
    needs 1;
    fn d01_a_handle_takes_an_interprocess_event() -> Result<()> {
        let context = Device::get(0)?.context()?;
        for flags in [EventFlags::DEFAULT, EventFlags::DISABLE_TIMING] {
            let refused = Event::new(&context, flags)?.ipc_handle();
            assert!(refusal(refused).contains("INTERPROCESS"));
        }
        Ok(())
    }
}

/// The body of the other process: it sees the event pending, prints that, and waits for it in both
/// ways.
fn other_process(text: &str) -> Result<()> {
    let (context, stream) = one_stream()?;
    // SAFETY: the handle comes from the process that started this one, which keeps its event until
    // this one has ended.
    let event = unsafe { Event::open_ipc(&context, from_hex(text)) }?;
    assert_eq!(event.flags(), EventFlags::DISABLE_TIMING);
    assert!(!event.query()?, "its stream is stalled");
    stream.wait_event(&event)?;
    println!("\n{PENDING}");
    std::io::stdout().flush().expect("the other process listens");
    event.synchronize()?;
    stream.synchronize()?;
    assert!(event.query()?);
    event.close()?;
    println!("\n{REACHED}");
    Ok(())
}

gpu_test! {
    needs 1, asynchronous, real;
    fn events_between_processes() -> Result<()> {
        if let Ok(handle) = env::var(HANDLE) {
            return other_process(&handle);
        }
        let (context, stream) = one_stream()?;
        let event = Event::new(&context, interprocess())?;
        event.record(&stream)?;
        event.synchronize()?;
        let handle = event.ipc_handle()?;
        assert_eq!(handle, event.ipc_handle()?);

        let stall = stall(stream.as_raw());
        event.record(&stream)?;
        let name = concat!(module_path!(), "::needs_1");
        let (_, name) = name.split_once("::").expect("a path");
        let mut child = Command::new(env::current_exe().expect("the path of the test program"))
            .args(["--include-ignored", "--nocapture", "--exact", name])
            .env(HANDLE, to_hex(handle))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut printed = |wanted: &str| lines.by_ref().any(|line| line.is_ok_and(|line| line == wanted));
        let pending = printed(PENDING);
        stall.release();
        let reached = printed(REACHED);
        let status = child.wait().expect("it ends");
        assert!(status.success() && pending && reached, "{status}: {pending} {reached}");
        Ok(())
    }
}
