//~ E0277
//~ says cannot be given as `HostSlice<
//~ says are the host's
use cuda_core::{DeviceBuffer, Result, Stream};

fn write(stream: &Stream, one: &DeviceBuffer<u32>, other: &mut DeviceBuffer<u32>) -> Result<()> {
    #[cfg(misuse)]
    return stream.upload(one, other);
    #[cfg(not(misuse))]
    stream.copy(one, other)
}

fn main() {}
