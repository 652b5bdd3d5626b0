//~ E0277
// The host could change a shared `Cell` while a device reads it.
use cuda_core::{Context, PinnedBuffer, Result};

#[cfg(misuse)]
type Element = std::cell::Cell<u32>;
#[cfg(not(misuse))]
type Element = u32;

fn allocate(context: &Context) -> Result<()> {
    let _: PinnedBuffer<Element> = PinnedBuffer::new(context, 16)?;
    Ok(())
}

fn main() {
    let _: fn(&Context) -> Result<()> = allocate;
}
