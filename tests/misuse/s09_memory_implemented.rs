//~ E0277
// An implementor of `Memory` could forge device addresses.
use cuda_core::{DeviceMemory, Memory};

#[allow(dead_code)]
struct Forged;

#[cfg(misuse)]
impl Memory for Forged {}

#[cfg(not(misuse))]
fn any_memory<M: Memory>() {}

fn main() {
    #[cfg(not(misuse))]
    any_memory::<DeviceMemory>();
    let _ = size_of::<DeviceMemory>();
}
