//! Looking at devices, in a process where nobody has used them.

use cuda_core::{Device, Result};
use support::gpu_test;

gpu_test! {
    needs 1;
    fn b02_available_no_context() -> Result<()> {
        assert!(Device::is_available());
        assert!(Device::count()? > 0);
        for device in Device::all()? {
            assert!(!device.name()?.is_empty());
            assert!(device.total_memory()? > 0);
            device.uuid()?;
            device.compute_capability()?;
            device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
            device.supports_memory_pools()?;
            assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
        }
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
