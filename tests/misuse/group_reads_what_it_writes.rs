//~ E0502
use cuda_core::{DeviceGroup, Result};

fn pass_on(group: &DeviceGroup) -> Result<()> {
    let mut here = group.alloc_zeroed::<u32>(8)?;
    let mut there = group.alloc_zeroed::<u32>(8)?;
    group.rotate(&here, &mut there, 1)?;
    #[cfg(misuse)]
    group.rotate(&here, &mut here, 1)?;
    #[cfg(not(misuse))]
    group.rotate(&there, &mut here, 1)?;
    Ok(())
}

fn main() {
    let _: fn(&DeviceGroup) -> Result<()> = pass_on;
}
