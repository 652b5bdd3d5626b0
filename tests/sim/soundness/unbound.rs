//! S31: operations in a host function that call the driver before they bind a stream, if at all.

use std::sync::Arc;

use cuda_core::dlpack::{Consumer, Tensor};
use cuda_core::{Device, DeviceGroup, Result};

use super::host_functions::{in_host_function, refused};
use super::{clean, device, primary};

/// A stream with an idle event records it without making one, which would be refused.
#[test]
fn s31_a_group_with_idle_events() {
    clean(|_| {
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let mut here = group.alloc_zeroed::<u8>(64)?;
        let mut there = group.alloc_zeroed::<u8>(64)?;
        for (stream, buffer) in group.streams().iter().zip(&mut here) {
            stream.checkpoint()?; // its event is idle after the next line
            stream.synchronize()?;
            stream.fill(buffer, 1)?;
        }
        refused(in_host_function(move || group.rotate(&here, &mut there, 1))?);
        cuda_core::drops::flush();
        Ok(())
    });
}

/// Of the many streams in a ledger some are queried whenever another one is added.
#[test]
fn s31_memory_that_many_streams_read_is_handed_over() {
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
        let tensor = Tensor::shared(&memory, &[16], None)?;
        let consumer = Consumer::Stream(device().create_stream()?);
        refused(in_host_function(move || {
            tensor.into_raw(&consumer).map(drop).map_err(|rejected| rejected.error)
        })?);
        cuda_core::drops::flush();
        Ok(())
    });
}
