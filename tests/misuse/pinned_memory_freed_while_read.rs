//~ E0505
use cuda_core::{PinnedBuffer, Result};

fn outlive(buffer: PinnedBuffer<u32>) -> Result<u32> {
    let slice = buffer.as_slice()?;
    #[cfg(misuse)]
    drop(buffer);
    let first = slice[0];
    #[cfg(not(misuse))]
    drop(buffer);
    Ok(first)
}

fn main() {}
