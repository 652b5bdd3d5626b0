//! The NUMA node of a device.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::device::Device;

/// A NUMA node, or none in particular.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NumaNode(u8);

/// The number of nodes that are distinguished; nodes with higher numbers share the bookkeeping of
/// [`NumaNode::ANY`].
const MOST: u8 = 64;

/// The number of devices whose node is remembered.
const DEVICES: usize = 64;

/// The nodes by device ordinal.
static KNOWN: [OnceLock<NumaNode>; DEVICES] = [const { OnceLock::new() }; DEVICES];

impl NumaNode {
    /// No particular node: the system does not report one.
    pub(super) const ANY: Self = Self(0);

    /// Node 0, which every system has.
    #[cfg(test)]
    pub(super) const ZERO: Self = Self(1);

    /// Returns the node that the device is attached to.
    #[inline]
    pub(super) fn of(device: Device) -> Self {
        let known = KNOWN.get(device.ordinal() as usize);
        known.map_or(Self::ANY, |known| *known.get_or_init(|| Self::look_up(device)))
    }

    /// Reads the node from Linux's `sysfs`, by the device's PCI address.
    #[cold]
    fn look_up(device: Device) -> Self {
        if !cfg!(all(target_os = "linux", not(miri))) {
            return Self::ANY;
        }
        let id = device.pci_bus_id().ok();
        id.map_or(Self::ANY, |id| Self::at(Path::new("/sys/bus/pci/devices"), &id))
    }

    /// Returns the node of the device with this PCI address; the folder `devices` has an entry for each
    /// device.
    fn at(devices: &Path, pci_bus_id: &str) -> Self {
        let file = devices.join(pci_bus_id.to_lowercase()).join("numa_node");
        let number = fs::read_to_string(file)
            .ok()
            // -1 if there is only one node, or the system does not know the node.
            .and_then(|text| text.trim().parse::<u8>().ok())
            .filter(|number| *number < MOST);
        number.map_or(Self::ANY, |number| Self(number + 1))
    }

    /// Returns the node's number, if it is a particular node.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(super) fn number(self) -> Option<u32> {
        self.0.checked_sub(1).map(u32::from)
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn nodes_as_the_system_shows_them() {
        let folder = format!("cuda-core-nodes-{}", std::process::id());
        let devices = std::env::temp_dir().join(folder);
        let device = devices.join("0000:3b:00.0");
        fs::create_dir_all(&device).expect("a folder");
        let at = |id| NumaNode::at(&devices, id).number();
        for (text, number) in [
            ("0\n", Some(0)),
            ("1\n", Some(1)),
            ("63", Some(63)),
            ("64\n", None),
            ("300\n", None),
            ("-1\n", None),
            ("", None),
            ("one\n", None),
        ] {
            fs::write(device.join("numa_node"), text).expect("a file");
            // The driver writes upper case letters, the system lower case.
            assert_eq!(at("0000:3B:00.0"), number, "{text:?}");
            assert_eq!(at("0000:3C:00.0"), None);
        }
        fs::remove_dir_all(&devices).expect("our own");
    }

    #[test]
    fn nodes_have_shelves_of_their_own() {
        assert_eq!((NumaNode::ANY.number(), NumaNode::ANY.index()), (None, 0));
        assert_eq!((NumaNode::ZERO.number(), NumaNode::ZERO.index()), (Some(0), 1));
    }
}
