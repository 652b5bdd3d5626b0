//~ E0599
// Only managed memory can be prefetched to a device or the host.
use cuda_core::{Result, Stream, managed::MemoryLocation};

#[cfg(misuse)]
type Buffer = cuda_core::DeviceBuffer<u32>;
#[cfg(not(misuse))]
type Buffer = cuda_core::managed::ManagedBuffer<u32>;

fn fetch(stream: &Stream, buffer: &Buffer) -> Result<()> {
    buffer.prefetch(stream, .., MemoryLocation::Host)
}

fn main() {}
