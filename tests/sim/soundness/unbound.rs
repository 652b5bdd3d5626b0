//! S31: operations in a host function that call the driver before they bind a stream, if at all.

use std::sync::Arc;

use cuda_core::{Access, Device, DeviceBuffer, DeviceGroup, Result};

use super::host_functions::{in_host_function, refused};
use super::{clean, device, primary};

/// Returns a group, and for each member a buffer that its stream writes. A stream with an idle event records
/// that event without creating another, which would be refused.
pub(super) fn with_idle_events() -> Result<(DeviceGroup, Vec<DeviceBuffer<u8>>)> {
    let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
    let mut written = group.alloc_zeroed::<u8>(64)?;
    for (stream, buffer) in group.streams().iter().zip(&mut written) {
        stream.checkpoint()?; // its event is idle after the next line
        stream.synchronize()?;
        stream.fill(buffer, 1)?;
    }
    Ok((group, written))
}

#[test]
fn s31_a_group_with_idle_events() {
    clean(|_| {
        let (group, here) = with_idle_events()?;
        let mut there = group.alloc_zeroed::<u8>(64)?;
        refused(in_host_function(move || group.rotate(&here, &mut there, 1))?);
        cuda_core::drops::flush();
        Ok(())
    });
}

/// Whenever a stream is added to a ledger with many, some of them are queried.
#[test]
fn s31_a_use_of_memory_that_many_streams_read() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut memory = primary().alloc::<u32>(16)?;
        stream.fill(&mut memory, 1)?;
        stream.synchronize()?;
        let memory = Arc::new(memory);
        let readers = (0..72).map(|_| device().create_stream()).collect::<Result<Vec<_>>>()?;
        let mut copies = Vec::new();
        for reader in &readers {
            let mut copy = reader.alloc::<u32>(16)?;
            reader.copy(&*memory, &mut copy)?;
            reader.checkpoint()?;
            copies.push(copy);
        }
        let (read, reader) = (memory.clone(), device().create_stream()?);
        refused(in_host_function(move || {
            // SAFETY: no work of other code uses the memory.
            unsafe { read.note_use(&reader, Access::Read) }
        })?);
        cuda_core::drops::flush();
        Ok(())
    });
}
