//~ E0277
// A tuple has padding, whose bytes are uninitialised: an array of equal parts has none.
use cuda_core::{DeviceBuffer, Result, Stream};

#[cfg(misuse)]
type Element = (u8, u32);
#[cfg(not(misuse))]
type Element = [u32; 2];

fn allocate(stream: &Stream) -> Result<()> {
    let _: DeviceBuffer<Element> = stream.alloc(16)?;
    Ok(())
}

fn main() {
    let _: fn(&Stream) -> Result<()> = allocate;
}
