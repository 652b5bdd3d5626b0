//~ E0277
// A copy reads its source, and uninitialised bytes must not be read.
use std::mem::MaybeUninit;

use cuda_core::{DeviceBuffer, Result, Stream};

#[cfg(misuse)]
type Element = MaybeUninit<u32>;
#[cfg(not(misuse))]
type Element = u32;

fn allocate(stream: &Stream) -> Result<()> {
    let _: DeviceBuffer<Element> = stream.alloc(16)?;
    let _ = MaybeUninit::<u32>::uninit();
    Ok(())
}

fn main() {
    let _: fn(&Stream) -> Result<()> = allocate;
}
