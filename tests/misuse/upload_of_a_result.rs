//~ E0277
//~ says a `Result` needs `?`
//~ says pinned memory with its slices are the host's
use cuda_core::{DeviceBuffer, PinnedBuffer, Result, Stream};

fn write(stream: &Stream, from: &PinnedBuffer<u32>, to: &mut DeviceBuffer<u32>) -> Result<()> {
    #[cfg(misuse)]
    return stream.upload(from.slice(..4), to);
    #[cfg(not(misuse))]
    stream.upload(from.slice(..4)?, to)
}

fn main() {
    let _: fn(&Stream, &PinnedBuffer<u32>, &mut DeviceBuffer<u32>) -> Result<()> = write;
}
