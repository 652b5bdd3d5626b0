//! Device queries. `b02_available_no_context` is in `tests/sticky`.

use std::ptr;

use cuda_core::{
    Current, Device, DeviceAttribute, DeviceAttributes, Error, P2pAttribute, PointerAttributes,
    Result, Uuid, Version, driver_version, runtime_version,
};
use cuda_sys::{
    CUdevice_P2PAttribute, CUdevice_attribute, CUresult, cuDeviceGetAttribute, cuDriverGetVersion,
    cuMemAlloc_v2, cuMemFree_v2,
};
use support::{check, context, gpu_test, refusal};

/// Returns the value of `cuDeviceGetAttribute`, or its error code.
fn raw_attribute(device: Device, attribute: DeviceAttribute) -> std::result::Result<i32, CUresult> {
    let mut value = 0;
    // SAFETY: the pointer is valid for a write; an unknown attribute is an error.
    let code = unsafe { cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) };
    if code == cuda_sys::CUDA_SUCCESS { Ok(value) } else { Err(code) }
}

gpu_test! {
    needs 2;
    fn b_devices_sort_and_cross_unwinding_and_become_current() -> Result<()> {
        let (first, second) = (Device::get(0)?, Device::get(1)?);
        assert!(first < second && [second, first].iter().min() == Some(&first));
        assert_eq!(second.to_string(), "device 1");
        let device = std::panic::catch_unwind(|| second.ordinal());
        assert_eq!(device.ok(), Some(1));
        assert_eq!(context::current(), ptr::null_mut());
        let before = second.set_current()?;
        assert_eq!(context::current(), second.context()?.as_raw());
        assert!(matches!(before, Current::None));
        first.set_current()?;
        assert_eq!(context::current(), first.context()?.as_raw());
        context::set_current(ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b03_attributes() -> Result<()> {
        // CUDA 13.5 names 149 attributes; some drivers do not know the later ones.
        const NAMED: u32 = 200;
        // All devices: some attributes differ between them.
        for (device, number) in Device::all()?.flat_map(|d| (1..=NAMED).map(move |n| (d, n))) {
            let attribute = CUdevice_attribute(number as _);
            let raw = raw_attribute(device, attribute);
            for _ in 0..2 {
                match (device.attribute(attribute), raw) {
                    (Ok(safe), Ok(raw)) => assert_eq!(safe, raw, "attribute {number}"),
                    (Err(safe), Err(raw)) => assert_eq!(safe.code(), Some(raw)),
                    (safe, raw) => panic!("attribute {number}: {safe:?}, raw {raw:?}"),
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
            Err(Error::NoSuchDevice { ordinal, count: found, .. }) => {
                assert_eq!((ordinal, found), (count, count));
            }
            other => panic!("device {count} of {count}: {other:?}"),
        }
        let ordinals: Vec<u32> = Device::all()?.map(Device::ordinal).collect();
        assert_eq!(ordinals, (0..count).collect::<Vec<_>>());
        Ok(())
    }
}

/// Returns whether the text is `DDDD:BB:DD.F` in hexadecimal digits.
fn is_bus_id(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
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
        // The highest id is unused.
        for id in ["fake:id", "", "FFFF:FF:1F.7"] {
            let error = Device::by_pci_bus_id(id).expect_err(id);
            let says = format!(
                "cuDeviceGetByPCIBusId: {id:?} was given; expected the address of a device of this \
                 process, such as 0000:65:00.0"
            );
            assert_eq!(error.to_string(), says);
        }
        // In C the id would end at the NUL.
        let hidden = Device::get(0)?.pci_bus_id()? + "\0";
        assert!(refusal(Device::by_pci_bus_id(&hidden)).contains("NUL byte"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b08_mem_info() -> Result<()> {
        const BYTES: usize = 256 << 20;
        let device = Device::get(0)?;
        let mut seen = Vec::new();
        // Repeated, since other processes may allocate and free meanwhile.
        for _ in 0..3 {
            let before = device.memory_info()?;
            assert!(0 < before.free && before.free <= before.total, "{before:?}");
            let guard = device.enter()?;
            let mut address = 0;
            // SAFETY: the pointer is valid for a write; a context is current.
            check("cuMemAlloc", unsafe { cuMemAlloc_v2(&mut address, BYTES) });
            let during = device.memory_info()?;
            // SAFETY: allocated above, and no other code uses it.
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
        assert!(version >= Version::new(11, 8), "{version}");
        let mut raw = 0;
        // SAFETY: the call writes one int, to a local that outlives it.
        check("cuDriverGetVersion", unsafe { cuDriverGetVersion(&mut raw) });
        assert_eq!(version.major * 1000 + version.minor * 10, raw as u32 / 10 * 10);
        assert_eq!(driver_version()?, version);
        assert_eq!(context::current(), ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn b10_from_pointer() -> Result<()> {
        let of = |address| PointerAttributes::of_device(address).map(|known| known.device);
        let devices = [Device::get(0)?, Device::get(1)?];
        let mut buffers = Vec::new();
        for device in devices {
            buffers.push((device, device.create_stream()?.alloc::<u8>(1000)?));
            buffers.push((device, device.context()?.alloc::<u8>(1000)?));
        }
        for (device, buffer) in &buffers {
            assert_eq!(buffer.device(), *device);
            assert_eq!(of(buffer.as_raw())?, Some(*device));
            assert_eq!(of(buffer.as_raw() + 999)?, Some(*device));
            let part = buffer.slice(100..)?;
            assert_eq!(part.device(), *device);
            assert_eq!(of(part.as_raw())?, Some(*device));
        }
        // The same with another device's context current.
        let guard = devices[1].enter()?;
        assert_eq!(of(buffers[0].1.as_raw())?, Some(devices[0]));
        guard.restore()?;
        let (local, boxed) = (0_u8, Box::new(0_u8));
        for host in [b"text".as_ptr(), &raw const local, &raw const *boxed] {
            assert_eq!(PointerAttributes::of_host(host)?.device, None);
        }
        assert_eq!(of(0)?, None);
        assert_eq!(context::current(), ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b03_attributes_by_name() -> Result<()> {
        for device in Device::all()? {
            let attributes = device.attributes();
            let raw = |attribute| raw_attribute(device, attribute).expect("every driver knows it");
            assert_eq!(attributes.warp_size()?, 32);
            assert_eq!(
                attributes.multiprocessor_count()?,
                raw(cuda_sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unsigned_abs(),
            );
            assert_eq!(
                attributes.unified_addressing()?,
                raw(cuda_sys::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) != 0,
            );
            let mut numbers = std::collections::BTreeSet::new();
            for (name, attribute) in DeviceAttributes::named() {
                assert!(numbers.insert(attribute.0), "{name} is named twice");
                match (device.attribute(attribute), raw_attribute(device, attribute)) {
                    (Ok(safe), Ok(raw)) => assert_eq!(safe, raw, "{name}"),
                    (Err(safe), Err(raw)) => assert_eq!(safe.code(), Some(raw), "{name}"),
                    (safe, raw) => panic!("{name}: {safe:?}, raw {raw:?}"),
                }
            }
            assert!(numbers.len() > 140, "{} attributes have a name", numbers.len());
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b05_uuid_round_trip() -> Result<()> {
        for device in Device::all()? {
            let uuid = device.uuid()?;
            let text = uuid.to_string();
            assert!(text.starts_with("GPU-") && text.len() == 40, "{text}");
            assert_eq!(text.parse::<Uuid>()?, uuid);
            assert_eq!(Device::by_uuid(uuid)?, device);
        }
        let unknown = Uuid::from_bytes([0xEE; 16]);
        match Device::by_uuid(unknown) {
            Err(Error::NoSuchUuid { uuid, count, .. }) => {
                assert_eq!((uuid, count), (unknown, Device::count()?));
            }
            other => panic!("a UUID of no device: {other:?}"),
        }
        let refused = "GPU-not-hexadecimal".parse::<Uuid>();
        assert!(refusal(refused).contains("expected"));
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k01_p2p_attributes() -> Result<()> {
        let (a, b) = (Device::get(0)?, Device::get(1)?);
        let access = cuda_sys::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        assert_eq!(a.p2p_attribute(b, access)? != 0, a.can_access_peer(b)?);
        let rank = cuda_sys::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
        assert!(a.p2p_attribute(b, rank)? >= 0);
        a.p2p_attribute(b, cuda_sys::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?;
        a.p2p_attribute(a, access).expect_err("a device is no peer of itself");
        let unknown: P2pAttribute = CUdevice_P2PAttribute(9999);
        let error = a.p2p_attribute(b, unknown).expect_err("there is no such attribute");
        assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_INVALID_VALUE));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b09_asking_for_the_runtime_makes_nothing_current() {
        assert_eq!(runtime_version(), runtime_version());
        assert_eq!(context::current(), ptr::null_mut());
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
