//~ E0308
// A managed buffer's memory cannot be exchanged for memory that the host does not reach.
use cuda_core::{DeviceBuffer, managed::ManagedBuffer};

fn exchange(values: &mut ManagedBuffer<u32>, other: &mut DeviceBuffer<u32>) {
    #[cfg(misuse)]
    std::mem::swap(values, other);
    #[cfg(not(misuse))]
    let _ = (values.len(), other.len());
}

fn main() {}
