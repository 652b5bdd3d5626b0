//! Managed memory.

use cuda_core::{
    Device,
    managed::{Advice, ManagedAttach, ManagedBuffer, MemoryLocation},
};
use support::one_stream;

use super::harness::{first, sweep};

#[test]
fn managed_memory() {
    sweep(|| {
        let (device, context) = first()?;
        let (s, t) = (context.create_stream()?, Device::get(1)?.create_stream()?);
        let mut values = ManagedBuffer::<u32>::new(&context, 16)?;
        values.as_mut_slice()?.fill(1);
        values.prefetch(&t, .., MemoryLocation::Device(Device::get(1)?))?;
        values.advise(..8, Advice::SetPreferredLocation(MemoryLocation::Device(device)))?;
        values.attributes(..)?;
        s.fill(values.slice_mut(8..)?, 2)?;
        assert_eq!(values.as_slice()?[7..9], [1, 2]);
        // SAFETY: from here on, only that stream uses the memory.
        unsafe { values.attach(&s, ManagedAttach::Single) }?;
        s.fill(&mut values, 3)?;
        assert_eq!(values.as_slice()?, [3; 16]);
        s.fill(&mut values, 4)?;
        Ok(values.close()?)
    });
}

#[test]
fn dropped_with_work_pending() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut values = ManagedBuffer::<u32>::new(&context, 16)?;
        stream.fill(&mut values, 1)?;
        drop(stream);
        Ok(())
    });
}
