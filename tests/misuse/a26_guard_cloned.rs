//~ E0599
// A guard stands for one entry; two would restore twice.
use cuda_core::{Device, Result};

fn twice(device: Device) -> Result<()> {
    let guard = device.enter()?;
    #[cfg(misuse)]
    let second = guard.clone();
    #[cfg(not(misuse))]
    let second = device.enter()?;
    drop(second);
    drop(guard);
    Ok(())
}

fn main() {}
