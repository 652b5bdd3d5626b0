//~ E0277
// Streams compare integers of 32 and 64 bits.
use cuda_core::{Device, Result, Signal};

#[cfg(misuse)]
fn signal(device: Device) -> Result<Signal<f32>> {
    Signal::new(device, 0.0)
}

#[cfg(not(misuse))]
fn signal(device: Device) -> Result<Signal<u32>> {
    Signal::new(device, 0)
}

fn main() {
    let _ = signal;
}
