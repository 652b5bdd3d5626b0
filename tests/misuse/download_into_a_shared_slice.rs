//~ E0277
//~ says cannot be given as `HostSliceMut<
//~ says download(buffer, &mut values)
//~ says `&mut memory` to be written
use cuda_core::{DeviceBuffer, Result, Stream};

fn read(stream: &Stream, buffer: &DeviceBuffer<u32>) -> Result<()> {
    #[allow(unused_mut, reason = "the misuse does not need it")]
    let mut values = vec![0u32; buffer.len()];
    #[cfg(misuse)]
    return stream.download(buffer, &values);
    #[cfg(not(misuse))]
    stream.download(buffer, &mut values)
}

fn main() {}
