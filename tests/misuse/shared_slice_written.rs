//~ E0277
// Others may read it at the same time.
use cuda_core::{DeviceBuffer, Result, SharedSlice, Stream};

#[cfg(misuse)]
type Destination<'a> = &'a mut SharedSlice<u32>;
#[cfg(not(misuse))]
type Destination<'a> = &'a mut DeviceBuffer<u32>;

fn write(stream: &Stream, destination: Destination<'_>) -> Result<()> {
    stream.fill(destination, 7)
}

fn main() {}
