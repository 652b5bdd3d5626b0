//~ E0502
use cuda_core::{DeviceBuffer, Result};

fn overlap(buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    let part = buffer.slice_mut(..4)?;
    #[cfg(misuse)]
    let whole = buffer.slice(..)?;
    let _ = part.len();
    #[cfg(not(misuse))]
    let whole = buffer.slice(..)?;
    let _ = whole.len();
    Ok(())
}

fn main() {}
