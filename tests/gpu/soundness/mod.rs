//! Hazards of the soundness table that a real GPU can show: a stalled stream delays work, and work that
//! should be ordered after it, but is not, then runs too soon. The suite on the simulated driver covers the
//! rest.

mod captures;
mod captures_global;
mod contexts;
mod implicit_order;
mod inputs;
mod order;
mod owners;
mod staged;
mod threads;

use cuda_core::{Context, Device, PinnedBuffer, Pod, Result, Stream};

/// Number of elements of a buffer: enough that a copy takes a while.
const LEN: usize = 1 << 20;

fn device() -> Result<Device> {
    Device::get(0)
}

fn primary() -> Result<Context> {
    device()?.context()
}

fn pinned<T: Pod>(value: T, len: usize) -> Result<PinnedBuffer<T>> {
    let mut buffer = PinnedBuffer::new(&primary()?, len)?;
    buffer.as_mut_slice()?.fill(value);
    Ok(buffer)
}

/// Returns a stream whose first use has already created what it needs: events, chunks, memory.
///
/// Creating these may wait for the device, permanently if a stream is stalled.
fn warm() -> Result<Stream> {
    let stream = device()?.create_stream()?;
    let other = device()?.create_stream()?;
    let mut buffer = stream.alloc_zeroed::<u32>(LEN)?;
    other.fill(&mut buffer, 1)?;
    stream.fill(&mut buffer, 2)?;
    let mut back = vec![0; 1024];
    stream.upload(&back, buffer.slice_mut(..1024)?)?;
    other.download(buffer.slice(..1024)?, &mut back)?;
    stream.synchronize()?;
    Ok(stream)
}

#[track_caller]
fn assert_all(elements: &[u32], value: u32) {
    let wrong = elements.iter().position(|element| *element != value);
    assert_eq!(wrong, None, "of {} elements, {value} expected", elements.len());
}
