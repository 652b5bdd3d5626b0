//~ E0277
use cuda_core::{DeviceBuffer, Stream};

fn borrow(stream: &Stream, values: Vec<u32>, buffer: &mut DeviceBuffer<u32>) {
    #[cfg(misuse)]
    drop(stream.upload_owned::<&[u32]>(&values, buffer));
    #[cfg(not(misuse))]
    drop(stream.upload_owned::<Vec<u32>>(values, buffer));
}

fn main() {}
