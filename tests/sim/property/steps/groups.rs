//! A group of devices moves data among its own buffers.

use cuda_core::{Device, DeviceGroup};
use proptest::prelude::*;

use crate::property::outcome::{Departure, Done, known, pattern, same};
use crate::property::program::len;
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) struct GroupOp {
    rounds: Rounds,
    len: u16,
    value: u8,
}

#[derive(Debug, Clone, Copy)]
enum Rounds {
    Rotate,
    Broadcast,
    AllToAll,
    Scatter,
}

pub(in crate::property) fn ops() -> impl Strategy<Value = GroupOp> {
    let rounds = prop_oneof![
        Just(Rounds::Rotate),
        Just(Rounds::Broadcast),
        Just(Rounds::AllToAll),
        Just(Rounds::Scatter),
    ];
    (rounds, len(), any::<u8>()).prop_map(|(rounds, len, value)| GroupOp { rounds, len, value })
}

const DEVICES: usize = 3;

impl World {
    pub(super) fn groups(&mut self, op: GroupOp) -> Done {
        let group = match &self.group {
            Some(group) => group,
            None => {
                let devices = (0..DEVICES as u32).map(Device::get);
                let devices = devices.collect::<cuda_core::Result<Vec<_>>>()?;
                self.group.insert(DeviceGroup::new(devices)?)
            }
        };
        let part = usize::from(op.len);
        let len = part * DEVICES;
        let bytes = pattern(len, op.value);
        let contents = known(&bytes);
        let mut a = group.alloc::<u8>(len)?;
        let mut b = group.alloc::<u8>(len)?;
        if let Rounds::Scatter = op.rounds {
            let mut parts = group.alloc::<u8>(part)?;
            group.scatter(&bytes, &mut parts)?;
            let mut back = vec![0; len];
            group.gather(&parts, &mut back)?;
            return Ok(same(&back, &contents)?);
        }
        group.upload_all(&bytes, &mut a)?;
        match op.rounds {
            Rounds::Rotate => {
                group.rotate(&a, &mut b, 1)?;
                group.rotate(&b, &mut a, 2)?;
            }
            Rounds::Broadcast => {
                group.streams()[1].fill(&mut a[1], !op.value)?;
                group.broadcast_in_place(&mut a, 0)?;
            }
            Rounds::AllToAll => {
                group.all_to_all(&a, &mut b)?;
                group.all_to_all(&b, &mut a)?;
            }
            Rounds::Scatter => {}
        }
        for (stream, buffer) in group.streams().iter().zip(&a) {
            let mut bytes = vec![0; len];
            stream.download(buffer, &mut bytes)?;
            said(same(&bytes, &contents), op.rounds)?;
        }
        Ok(())
    }
}

fn said(compared: Result<(), String>, rounds: Rounds) -> Done {
    compared.map_err(|wrong| Departure::Wrong(format!("{rounds:?}: {wrong}")))
}
