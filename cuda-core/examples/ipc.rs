//! Two processes share one buffer: the first writes it; the second waits on the device, reads it and answers.
//! The second process is this program again, with the handles as arguments.

mod shared;

use std::env;
use std::process::{Command, ExitCode};

use cuda_core::{
    DeviceBuffer, Event, EventFlags,
    interop::{IpcEventHandle, IpcMemoryHandle},
};

/// Number of elements: 2 MiB, so that no other allocation shares the block that the handle opens.
const LEN: usize = 1 << 19;

fn hex(bytes: [u8; 64]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> shared::Result<[u8; 64]> {
    let digit = |at| text.get(at..at + 2).ok_or("a handle has 64 bytes");
    let mut bytes = [0; 64];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digit(2 * index)?, 16)?;
    }
    Ok(bytes)
}

fn first() -> shared::Result {
    let device = shared::device()?;
    if shared::is_simulated(device)? {
        return Err(shared::Lacks(
            "a real GPU: simulated memory cannot be shared between processes",
        )
        .into());
    }
    let context = device.context()?;
    let stream = context.create_stream()?;
    let mut buffer = context.alloc::<u32>(LEN)?; // pool memory has no handle
    let flags = EventFlags::INTERPROCESS | EventFlags::DISABLE_TIMING;
    let written = Event::new(&context, flags)?;
    stream.fill(&mut buffer, 41)?;
    written.record(&stream)?;

    let handles = [buffer.ipc_handle()?.to_bytes(), written.ipc_handle()?.to_bytes()].map(hex);
    let status = Command::new(env::current_exe()?).args(handles).status()?;
    if !status.success() {
        return Err(format!("the second process: {status}").into());
    }
    let mut back = vec![0; LEN];
    stream.download(&buffer, &mut back)?;
    assert!(back.iter().all(|&element| element == 42));
    println!("first process: the answer is {}", back[0]);
    Ok(())
}

fn second(memory: &str, event: &str) -> shared::Result {
    let context = shared::device()?.context()?;
    let stream = context.create_stream()?;
    let memory = IpcMemoryHandle::from_bytes(unhex(memory)?);
    let event = IpcEventHandle::from_bytes(unhex(event)?);
    // SAFETY: the first process keeps its event until this one has ended.
    let written = unsafe { Event::open_ipc(&context, event) }?;
    // SAFETY: the first process keeps the memory, of this many elements, until this one has ended. It uses
    // the memory before `written` and after this process has ended; this process uses it in between.
    let mut buffer = unsafe { DeviceBuffer::<u32>::open_ipc(&context, memory, LEN) }?;
    stream.wait_event(&written)?;
    let mut seen = vec![0; LEN];
    stream.download(&buffer, &mut seen)?;
    assert!(seen.iter().all(|&element| element == 41));
    println!("second process: found {}", seen[0]);
    stream.fill(&mut buffer, 42)?;
    Ok(stream.synchronize()?)
}

fn main() -> ExitCode {
    shared::run(|| match &env::args().collect::<Vec<_>>()[..] {
        [_, memory, event] => second(memory, event),
        _ => first(),
    })
}
