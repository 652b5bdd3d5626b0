//~ E0277
// What is current belongs to a thread, so a guard must end on the one it began on.
use cuda_core::{Device, Guard};

#[cfg(misuse)]
fn cross(guard: Guard) {
    std::thread::spawn(move || drop(guard));
}

#[cfg(not(misuse))]
fn cross(device: Device) {
    std::thread::spawn(move || device.enter().map(Guard::restore));
}

fn main() {}
