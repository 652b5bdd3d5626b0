//~ unused_must_use
// A guard that is not bound ends at once, and what follows runs without it.
#![deny(unused_must_use)]
use cuda_core::{Device, Result};

fn enter(device: Device) -> Result<()> {
    #[cfg(misuse)]
    device.enter()?;
    #[cfg(not(misuse))]
    let _guard = device.enter()?;
    Ok(())
}

fn main() {}
