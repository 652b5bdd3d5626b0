//! Device queries in a process in which nothing has used the devices.

use std::ptr;

use cuda_core::{Device, DeviceAttributes, PointerAttributes, Result};
use support::{check, context, gpu_test};

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
                // Attributes that the driver does not know return errors.
                let _ = device.attribute(attribute);
            }
            for peer in Device::all()?.filter(|peer| *peer != device) {
                let access = cuda_sys::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
                device.p2p_attribute(peer, access)?;
                device.can_access_peer(peer)?;
            }
            device.compute_capability()?;
            device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
            device.attributes().memory_pools_supported()?;
            assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
        }
        assert_eq!(PointerAttributes::of_device(0)?.device, None);
        cuda_core::driver_version()?;
        cuda_core::runtime_version();
        for device in Device::all()? {
            assert!(!device.primary_state()?.is_active, "{device:?} has a context");
        }
        // A control: once a context exists, the query reports it.
        let first = Device::get(0)?;
        first.context()?;
        assert!(first.primary_state()?.is_active);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b_reset_primary() -> Result<()> {
        let device = Device::get(0)?;
        // Another library retains the context and leaves it active.
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one context, to a local that outlives it; a handle of no device
        // is an error.
        check("cuDevicePrimaryCtxRetain", unsafe {
            cuda_sys::cuDevicePrimaryCtxRetain(&mut raw, context::device(0))
        });
        assert!(device.primary_state()?.is_active);
        // SAFETY: nothing was created in the context.
        unsafe { device.reset_primary() }?;
        assert!(!device.primary_state()?.is_active, "nothing here had retained it");

        let context = device.context()?;
        let stream = context.create_stream()?;
        drop(stream.alloc_zeroed::<u32>(16)?);
        stream.synchronize()?;
        drop(stream);
        cuda_core::CachingPool::shared()?.trim(0)?;
        cuda_core::staging::trim()?;
        // SAFETY: everything created in the context is gone, and it is current on no thread.
        match unsafe { device.reset_primary() } {
            // The same context, and usable.
            Ok(()) => {
                assert!(device.primary_state()?.is_active);
                assert_eq!(device.context()?, context);
                let stream = context.create_stream()?;
                let buffer = stream.alloc_zeroed::<u32>(16)?;
                let mut back = [1; 16];
                stream.download(&buffer, &mut back)?;
                assert_eq!(back, [0; 16]);
            }
            Err(error) => {
                assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED));
            }
        }
        Ok(())
    }
}
