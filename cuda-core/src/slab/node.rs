//! Which part of the host's memory is next to a device.

use std::fs;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::device::Device;

/// A NUMA node, or none in particular.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node(u8);

/// Nodes that are told apart; there are machines with more, whose slabs then share a place.
const MOST: u8 = 64;

/// Devices whose node is remembered.
const DEVICES: usize = 64;

/// By ordinal; zero where nobody has asked yet, otherwise one more than the [`Node`].
static KNOWN: [AtomicU8; DEVICES] = [const { AtomicU8::new(0) }; DEVICES];

impl Node {
    /// Where the system does not say.
    pub(super) const ANY: Self = Self(0);

    /// The one that every system has.
    #[cfg(test)]
    pub(super) const ZERO: Self = Self(1);

    /// The node that the device is attached to.
    #[inline]
    pub(super) fn of(device: Device) -> Self {
        let Some(known) = KNOWN.get(device.ordinal() as usize) else {
            return Self::ANY;
        };
        match known.load(Ordering::Relaxed) {
            0 => {
                let node = Self::look_up(device);
                known.store(node.0 + 1, Ordering::Relaxed);
                node
            }
            node => Self(node - 1),
        }
    }

    /// Linux shows it with the device's place on the bus.
    #[cold]
    fn look_up(device: Device) -> Self {
        if !cfg!(all(target_os = "linux", not(miri))) {
            return Self::ANY;
        }
        let number = device
            .pci_bus_id()
            .ok()
            .and_then(|id| {
                let id = id.to_lowercase();
                fs::read_to_string(format!("/sys/bus/pci/devices/{id}/numa_node")).ok()
            })
            // -1 where there is only one, or nobody knows.
            .and_then(|text| text.trim().parse::<u8>().ok())
            .filter(|number| *number < MOST);
        number.map_or(Self::ANY, |number| Self(number + 1))
    }

    /// Its number, if there is one in particular.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(super) fn number(self) -> Option<u32> {
        self.0.checked_sub(1).map(u32::from)
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}
