//~ E0277
use cuda_core::{DeviceBuffer, Result, Stream};

#[cfg(misuse)]
type Destination<'a> = &'a DeviceBuffer<u32>;
#[cfg(not(misuse))]
type Destination<'a> = &'a mut DeviceBuffer<u32>;

fn write(stream: &Stream, destination: Destination<'_>) -> Result<()> {
    stream.upload(&[1, 2, 3], destination)
}

fn main() {}
