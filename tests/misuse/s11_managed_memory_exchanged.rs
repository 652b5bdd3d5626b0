//~ E0596
// A managed buffer's memory cannot be exchanged for memory that the host does not reach.
use cuda_core::{DeviceBuffer, ManagedBuffer};

fn exchange(values: &mut ManagedBuffer<u32>, other: &mut DeviceBuffer<u32>) {
    #[cfg(misuse)]
    std::mem::swap(&mut *values.as_device(), other);
    #[cfg(not(misuse))]
    let _ = (values.as_device().len(), other.len());
}

fn main() {}
