//~ E0277
// A device may write any byte; a `bool` has two.
use cuda_core::{DeviceBuffer, Result, Stream};

#[cfg(misuse)]
type Element = bool;
#[cfg(not(misuse))]
type Element = u8;

fn allocate(stream: &Stream) -> Result<()> {
    let _: DeviceBuffer<Element> = stream.alloc(16)?;
    Ok(())
}

fn main() {}
