//~ E0277
// A device may write zero.
use cuda_core::{Context, PinnedBuffer, Result};

#[cfg(misuse)]
type Element = std::num::NonZero<u32>;
#[cfg(not(misuse))]
type Element = u32;

fn allocate(context: &Context) -> Result<()> {
    let _: PinnedBuffer<Element> = PinnedBuffer::new(context, 16)?;
    Ok(())
}

fn main() {
    let _: fn(&Context) -> Result<()> = allocate;
}
