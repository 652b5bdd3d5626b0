//~ E0599
// Only managed memory has places to be.
use cuda_core::{MemoryLocation, Result, Stream};

#[cfg(misuse)]
type Buffer = cuda_core::DeviceBuffer<u32>;
#[cfg(not(misuse))]
type Buffer = cuda_core::ManagedBuffer<u32>;

fn fetch(stream: &Stream, buffer: &Buffer) -> Result<()> {
    buffer.prefetch(stream, .., MemoryLocation::Host)
}

fn main() {}
