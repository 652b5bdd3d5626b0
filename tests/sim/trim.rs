//! Memory that the library keeps for reuse, released by one call.

use cuda_core::{Context, ContextFlags, Device, PinnedBuffer, Result, Signal, Stream};
use support::simulator;

/// Uses each cache: of device memory, of pinned memory, of staging chunks, of signals.
fn program(stream: &Stream) -> Result<()> {
    let mut buffer = stream.alloc_zeroed::<u32>(1 << 20)?;
    let pinned = PinnedBuffer::from_slice(stream.context(), &[7_u32; 1 << 10])?;
    stream.upload(&pinned, buffer.slice_mut(..1 << 10)?)?;
    stream.upload(&vec![7_u32; 1 << 10], buffer.slice_mut(1 << 10..2 << 10)?)?;
    let signal = Signal::new(stream.context(), 0_u32)?;
    stream.write_signal(&signal, 1)?;
    assert_eq!(stream.download_vec(&buffer)?[..2 << 10], [7; 2 << 10]);
    Ok(())
}

/// With streams of two contexts, one of them not primary, and with work that waits for a function.
#[test]
fn a_program_that_waits_and_trims_at_its_end_is_clean() -> Result<()> {
    let session = simulator();
    let device = Device::get(0)?;
    let second = Context::new(device, ContextFlags::default())?;
    for context in [&device.context()?, &second] {
        let stream = context.create_stream()?;
        stream.launch_host_func(std::thread::yield_now)?;
        program(&stream)?;
        stream.launch_host_func(std::thread::yield_now)?;
    }
    // Of the second context, nothing was left to trim after the wait.
    assert!(cuda_core::synchronize_and_trim()? >= 4 << 20);
    // The contexts of other tests, which the process keeps, are waited for as well.
    assert!(session.calls("cuCtxSynchronize") >= 2);
    drop(second);
    session.assert_clean();
    Ok(())
}

/// A context that another thread waits for is kept alive; no other one is.
#[test]
fn a_context_is_closed_while_another_is_waited_for() -> Result<()> {
    let session = simulator();
    Device::get(0)?.context()?;
    let own = Context::new(Device::get(0)?, ContextFlags::default())?;
    let held = session.hold("cuCtxSynchronize");
    std::thread::scope(|scope| {
        let trimming = scope.spawn(cuda_core::synchronize_and_trim);
        held.await_call();
        let closed = own.close();
        drop(held);
        trimming.join().expect("no panic")?;
        closed.map_err(cuda_core::Error::from)
    })?;
    session.assert_clean();
    Ok(())
}

#[test]
fn a_program_that_trims_at_its_end_is_clean() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    program(&stream)?;
    stream.synchronize()?;
    drop(stream);
    assert!(!session.leaks().is_empty(), "the caches keep memory");
    assert!(cuda_core::trim()? >= 4 << 20);
    assert_eq!(cuda_core::trim()?, 0);
    session.assert_clean();
    Ok(())
}
