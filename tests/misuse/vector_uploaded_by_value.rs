//~ E0277
//~ says `Vec<u32>` cannot be given as `HostSlice<
//~ says upload(&values, buffer)
use cuda_core::{DeviceBuffer, Result, Stream};

fn write(stream: &Stream, values: Vec<u32>, buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    #[cfg(misuse)]
    return stream.upload(values, buffer);
    #[cfg(not(misuse))]
    stream.upload(&values, buffer)
}

fn main() {}
