//~ E0505
use cuda_core::{DeviceBuffer, Result};

fn outlive(buffer: DeviceBuffer<u32>) -> Result<()> {
    let view = buffer.slice(..)?;
    #[cfg(misuse)]
    drop(buffer);
    let _ = view.len();
    #[cfg(not(misuse))]
    drop(buffer);
    Ok(())
}

fn main() {}
