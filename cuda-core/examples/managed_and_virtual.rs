//! Memory that host and device share, and memory that grows in place.

mod shared;

use std::process::ExitCode;

use cuda_core::{
    Device,
    managed::{Advice, ManagedBuffer, MemoryLocation},
    sys,
    virtual_memory::VirtualBuffer,
};

fn managed(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let mut values = ManagedBuffer::<u32>::new(stream.context(), 1 << 20)?;
    values.as_mut_slice()?.fill(1); // the host writes in place
    values.advise(.., Advice::SetPreferredLocation(MemoryLocation::Device(device)))?;
    values.prefetch(&stream, .., MemoryLocation::Device(device))?;
    stream.fill(values.slice_mut(..1000)?, 2)?; // the device does
    let sum: u32 = values.as_slice()?.iter().sum(); // waits, then the host reads in place
    assert_eq!(sum, (1 << 20) + 1000);
    println!("managed: host and device wrote, the sum is {sum}");
    Ok(())
}

fn growing(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    // Reserves addresses for 64 GiB, without memory.
    let mut list = VirtualBuffer::<u32>::new(stream.context(), 1 << 34)?;
    let address = list.as_raw();
    for len in [1 << 10, 1 << 20, 1 << 22] {
        let old = list.len();
        list.grow_to(len)?; // copies nothing, and waits for nothing
        stream.fill(list.slice_mut(old..)?, len as u32)?;
        let mib = (list.capacity() * size_of::<u32>()) >> 20;
        println!("virtual: {len} elements in {mib} MiB");
    }
    assert_eq!(list.as_raw(), address);
    let mut back = vec![0; list.len()];
    stream.download(&list, &mut back)?;
    assert_eq!((back[0], back[1 << 10], back[1 << 20]), (1 << 10, 1 << 20, 1 << 22));
    list.shrink_to(1 << 10)?; // waits for work on the part that is unmapped
    println!("virtual: the address stayed the same");
    Ok(())
}

fn example() -> shared::Result {
    let device = shared::device()?;
    if device.attribute(sys::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? == 0 {
        return Err(shared::Lacks("a device with managed memory").into());
    }
    if !device.attributes().virtual_memory_management_supported()? {
        return Err(shared::Lacks("a device with virtual memory management").into());
    }
    managed(device)?;
    growing(device)
}

fn main() -> ExitCode {
    shared::run(example)
}
