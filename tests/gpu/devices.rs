//! Devices: what can be asked of them. `b02_available_no_context` is in `tests/sticky`.

use std::ffi::c_int;
use std::ptr;

use cuda_core::{Device, DeviceAttribute, Error, Result, driver_version};
use cuda_sys::{
    CUdevice_attribute, CUdeviceptr, CUresult, cuDeviceGetAttribute, cuDriverGetVersion,
    cuMemAlloc_v2, cuMemFree_v2, cuPointerGetAttribute,
};
use support::{check, context, gpu_test};

/// `cuDeviceGetAttribute`: the value, or the code.
fn raw_attribute(device: Device, attribute: DeviceAttribute) -> std::result::Result<i32, CUresult> {
    let mut value = 0;
    // SAFETY: the pointer is valid for a write; an unknown attribute is an error.
    let code = unsafe { cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) };
    if code == cuda_sys::CUDA_SUCCESS {
        Ok(value)
    } else {
        Err(code)
    }
}

gpu_test! {
    needs 1;
    fn b03_attributes() -> Result<()> {
        // CUDA 13.5 names 149 of them; what comes after is unknown to some drivers.
        const NAMED: u32 = 200;
        // Every device there is: some attributes tell them apart.
        for (device, number) in Device::all()?.flat_map(|d| (1..=NAMED).map(move |n| (d, n))) {
            let attribute = CUdevice_attribute(number as _);
            let raw = raw_attribute(device, attribute);
            for _ in 0..2 {
                match (device.attribute(attribute), raw) {
                    (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "attribute {number}"),
                    (Err(ours), Err(theirs)) => assert_eq!(ours.code(), Some(theirs)),
                    (ours, theirs) => panic!("attribute {number}: {ours:?}, raw {theirs:?}"),
                }
            }
        }
        let device = Device::get(0)?;
        assert_eq!(device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32);
        let (major, minor) = device.compute_capability()?;
        assert!(major >= 3 && (0..10).contains(&minor), "{major}.{minor}");

        let unknown = device.attribute(CUdevice_attribute(1_000_000));
        let error = unknown.expect_err("there is no such attribute");
        assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_INVALID_VALUE));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b04_attributes_bad_device() -> Result<()> {
        let count = Device::count()?;
        let warp = cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
        match Device::get(count).and_then(|device| device.attribute(warp)) {
            Err(Error::NoSuchDevice { ordinal, count: found }) => {
                assert_eq!((ordinal, found), (count, count));
            }
            other => panic!("device {count} of {count}: {other:?}"),
        }
        let ordinals: Vec<u32> = Device::all()?.map(Device::ordinal).collect();
        assert_eq!(ordinals, (0..count).collect::<Vec<_>>());
        Ok(())
    }
}

/// Whether the text is `DDDD:BB:DD.F` in hexadecimal digits.
fn is_bus_id(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_hexdigit() { 'x' } else { c })
        .collect();
    shape == "xxxx:xx:xx.x"
}

gpu_test! {
    needs 1;
    fn b05_pci_round_trip() -> Result<()> {
        for device in Device::all()? {
            let id = device.pci_bus_id()?;
            assert!(is_bus_id(&id), "{id}");
            assert_eq!(Device::by_pci_bus_id(&id)?.ordinal(), device.ordinal());
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b06_pci_bad() -> Result<()> {
        // Nobody's: the highest address there is.
        for id in ["fake:id", "", "FFFF:FF:1F.7"] {
            let error = Device::by_pci_bus_id(id).expect_err(id);
            let code = error.code().expect("the driver was asked");
            let known = [
                cuda_sys::CUDA_ERROR_INVALID_VALUE,
                cuda_sys::CUDA_ERROR_INVALID_DEVICE,
            ];
            assert!(known.contains(&code), "{id:?}: {error}");
        }
        // C would read the id of a device, and stop at the NUL.
        let hidden = Device::get(0)?.pci_bus_id()? + "\0";
        assert!(matches!(Device::by_pci_bus_id(&hidden), Err(Error::Nul { .. })));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b08_mem_info() -> Result<()> {
        const BYTES: usize = 256 << 20;
        let device = Device::get(0)?;
        let mut seen = Vec::new();
        // Other processes may allocate and free meanwhile.
        for _ in 0..3 {
            let before = device.memory_info()?;
            assert!(0 < before.free && before.free <= before.total, "{before:?}");
            let guard = device.guard()?;
            let mut address = 0;
            // SAFETY: the pointer is valid for a write; a context is current.
            check("cuMemAlloc", unsafe { cuMemAlloc_v2(&mut address, BYTES) });
            let during = device.memory_info()?;
            // SAFETY: allocated above and used by nobody.
            check("cuMemFree", unsafe { cuMemFree_v2(address) });
            drop(guard);
            let after = device.memory_info()?;
            let free = [before, during, after].map(|info| info.free);
            if free[0] >= free[1] + BYTES && free[2] >= free[1] + BYTES {
                return Ok(());
            }
            seen.push(free);
        }
        panic!("free before, during and after {BYTES} bytes: {seen:?}");
    }
}

gpu_test! {
    needs 1;
    fn b09_versions() -> Result<()> {
        let version = driver_version()?;
        assert!(version >= 11080, "{version}");
        let mut raw = 0;
        // SAFETY: the pointer is valid for a write.
        check("cuDriverGetVersion", unsafe { cuDriverGetVersion(&mut raw) });
        assert_eq!(version, raw);
        assert_eq!(driver_version()?, version);
        assert_eq!(context::current(), ptr::null_mut());
        Ok(())
    }
}

/// `cuPointerGetAttribute` of the device's ordinal; [`None`] for memory that CUDA does not know.
fn raw_device_of(address: CUdeviceptr) -> Option<u32> {
    let attribute = cuda_sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let mut ordinal: c_int = -1;
    // SAFETY: the attribute's value is an int, which the pointer is valid for; any address may be
    // asked about.
    let code = unsafe { cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address) };
    if code != cuda_sys::CUDA_SUCCESS {
        return None;
    }
    u32::try_from(ordinal).ok()
}

gpu_test! {
    needs 2;
    fn b10_from_pointer() -> Result<()> {
        let mut buffers = Vec::new();
        for ordinal in [0, 1] {
            let stream = Device::get(ordinal)?.create_stream()?;
            buffers.push(stream.alloc::<u8>(1000)?);
        }
        for (ordinal, buffer) in (0..).zip(&buffers) {
            assert_eq!(buffer.device().ordinal(), ordinal);
            assert_eq!(raw_device_of(buffer.as_raw()), Some(ordinal));
            assert_eq!(buffer.slice(100..)?.device().ordinal(), ordinal);
            assert_eq!(raw_device_of(buffer.slice(100..)?.as_raw()), Some(ordinal));
        }
        let local = 0u8;
        assert_eq!(raw_device_of((&raw const local).addr() as CUdeviceptr), None);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b12_priority_range() -> Result<()> {
        let (least, greatest) = Device::get(0)?.context()?.stream_priority_range()?;
        assert!(greatest <= least, "{least} to {greatest}");
        assert!((greatest..=least).contains(&0), "{least} to {greatest}");
        Ok(())
    }
}
