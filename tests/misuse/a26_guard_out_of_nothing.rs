//~ E0277
use cuda_core::{Device, Guard, Result};

fn guard(_device: Device) -> Result<Guard> {
    #[cfg(misuse)]
    return Ok(make());
    #[cfg(not(misuse))]
    _device.enter()
}

#[cfg(misuse)]
fn make<T: Default>() -> T {
    T::default()
}

fn main() {}
