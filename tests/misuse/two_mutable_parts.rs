//~ E0499
// Two mutable views come from `split_at_mut`, which knows that they are apart.
use cuda_core::{DeviceBuffer, Result};

fn parts(buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    #[cfg(misuse)]
    let (left, right) = (buffer.slice_mut(..4)?, buffer.slice_mut(4..)?);
    #[cfg(not(misuse))]
    let (left, right) = buffer.split_at_mut(4)?;
    let _ = (left.len(), right.len());
    Ok(())
}

fn main() {}
