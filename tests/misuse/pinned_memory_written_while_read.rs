//~ E0502
use cuda_core::{PinnedBuffer, Result};

fn alias(buffer: &mut PinnedBuffer<u32>) -> Result<u32> {
    let before = buffer.as_slice()?;
    #[cfg(not(misuse))]
    let first = before[0];
    buffer.as_mut_slice()?[0] = 1;
    #[cfg(misuse)]
    let first = before[0];
    Ok(first)
}

fn main() {}
