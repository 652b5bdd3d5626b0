//! The host reads memory, and writes it.

use cuda_core::managed::ManagedBuffer;
use proptest::prelude::*;

use crate::property::outcome::{Contents, Done, known, pick, same};
use crate::property::program::{Part, part};
use crate::property::world::World;
use crate::property::world::memory::OfDevice;

#[derive(Debug, Clone)]
pub(in crate::property) enum HostOp {
    Read { from: Part },
    TryRead { from: Part },
    Write { to: Part, value: u8 },
    ReadManaged { buffer: u8 },
    WriteManaged { buffer: u8, value: u8 },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = HostOp> {
    prop_oneof![
        2 => part().prop_map(|from| HostOp::Read { from }),
        2 => part().prop_map(|from| HostOp::TryRead { from }),
        4 => (part(), any::<u8>()).prop_map(|(to, value)| HostOp::Write { to, value }),
        1 => any::<u8>().prop_map(|buffer| HostOp::ReadManaged { buffer }),
        1 => (any::<u8>(), any::<u8>())
            .prop_map(|(buffer, value)| HostOp::WriteManaged { buffer, value }),
    ]
}

impl World {
    pub(super) fn host(&mut self, op: HostOp) -> Done {
        match op {
            HostOp::Read { from } => {
                if let Some(held) = pick(&mut self.host, from.buffer) {
                    let from = from.of(held.memory.len());
                    let part = held.memory.view().slice(from.clone())?;
                    same(part.as_slice()?, &held.contents[from])?;
                }
            }
            HostOp::TryRead { from } => {
                if let Some(held) = pick(&mut self.host, from.buffer) {
                    let from = from.of(held.memory.len());
                    let part = held.memory.view().slice(from.clone())?;
                    if let Some(bytes) = part.try_as_slice()? {
                        same(bytes, &held.contents[from])?;
                    }
                }
            }
            HostOp::Write { to, value } => {
                if let Some(held) = pick(&mut self.host, to.buffer) {
                    let to = to.of(held.memory.len());
                    let mut view = held.memory.view_mut();
                    let mut part = view.slice_mut(to.clone())?;
                    write(part.as_mut_slice()?, &mut held.contents[to], value)?;
                }
            }
            HostOp::ReadManaged { buffer } => {
                if let Some((buffer, contents)) = self.managed(buffer) {
                    same(buffer.as_slice()?, contents)?;
                }
            }
            HostOp::WriteManaged { buffer, value } => {
                if let Some((buffer, contents)) = self.managed(buffer) {
                    write(buffer.as_mut_slice()?, contents, value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the managed buffer of that number. Returns none under Miri, which cannot access an address
    /// that the driver returned as a number: tests of managed memory run with permissive provenance.
    fn managed(&mut self, number: u8) -> Option<(&mut ManagedBuffer<u8>, &mut Contents)> {
        if cfg!(miri) {
            return None;
        }
        let all = self.device.iter_mut();
        let mut managed: Vec<_> = all
            .filter_map(|held| match &mut held.memory {
                OfDevice::Managed(buffer) => Some((buffer, &mut held.contents)),
                OfDevice::Plain(_) => None,
            })
            .collect();
        let index = usize::from(number).checked_rem(managed.len())?;
        Some(managed.swap_remove(index))
    }
}

/// Compares the contents, then writes other values.
fn write(bytes: &mut [u8], contents: &mut [Option<u8>], value: u8) -> Done {
    same(bytes, contents)?;
    for (byte, i) in bytes.iter_mut().zip((0..=u8::MAX).cycle()) {
        *byte = value ^ i;
    }
    contents.copy_from_slice(&known(bytes));
    Ok(())
}
