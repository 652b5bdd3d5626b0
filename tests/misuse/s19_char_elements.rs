//~ E0277
// Not every four bytes are a `char`.
use cuda_core::{DeviceBuffer, Result, Stream};

#[cfg(misuse)]
type Element = char;
#[cfg(not(misuse))]
type Element = u32;

fn allocate(stream: &Stream) -> Result<()> {
    let _: DeviceBuffer<Element> = stream.alloc_zeroed(16)?;
    Ok(())
}

fn main() {
    let _: fn(&Stream) -> Result<()> = allocate;
}
