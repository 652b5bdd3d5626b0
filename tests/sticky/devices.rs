//! Looking at devices, in a process where nobody has used them.

use cuda_core::{Device, DeviceAttributes, Result};
use support::gpu_test;

gpu_test! {
    needs 1;
    fn b02_available_no_context() -> Result<()> {
        assert!(Device::is_available());
        assert!(Device::count()? > 0);
        for device in Device::all()? {
            assert!(!device.name()?.is_empty());
            assert!(device.total_memory()? > 0);
            assert_eq!(Device::by_uuid(device.uuid()?)?, device);
            assert!(!device.primary_state()?.is_active);
            for (_, attribute) in DeviceAttributes::named() {
                // Those that the driver does not know are errors.
                let _ = device.attribute(attribute);
            }
            for peer in Device::all()?.filter(|peer| *peer != device) {
                let access = cuda_sys::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
                device.p2p_attribute(peer, access)?;
                device.can_access_peer(peer)?;
            }
            device.compute_capability()?;
            device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
            device.supports_memory_pools()?;
            assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
        }
        assert_eq!(Device::of_pointer(0)?, None);
        cuda_core::driver_version()?;
        cuda_core::runtime_version();
        for device in Device::all()? {
            assert!(!device.is_primary_active()?, "{device:?} has a context");
        }
        // The question is a good one: a context that there is shows.
        let first = Device::get(0)?;
        first.context()?;
        assert!(first.is_primary_active()?);
        Ok(())
    }
}
