//! Device queries.

use std::ffi::{CStr, c_char, c_int};

use cuda_sys::*;

use crate::call::{Outcome, put};
use crate::device;

entries! {
    cuDeviceGet(device, ordinal) |call| {
        call.device(ordinal)?;
        // SAFETY: the caller passes a place for the device.
        unsafe { put(device, ordinal) }
    }

    cuDeviceGetCount(count) |call| {
        // SAFETY: the caller passes a place for the count.
        unsafe { put(count, call.devices.len() as c_int) }
    }

    cuDeviceGetName(name, len, dev) |call| {
        call.device(dev)?;
        // SAFETY: the caller passes a buffer of `len` characters.
        unsafe { put_text(name, len, device::NAME) }
    }

    cuDeviceGetUuid(uuid, dev) |call| {
        let bytes = device::uuid(call.device(dev)?);
        // SAFETY: the caller passes a place for the id, which is 16 bytes.
        unsafe { put(uuid.cast(), bytes) }
    }

    cuDeviceGetUuid_v2(uuid, dev) |call| {
        let bytes = device::uuid(call.device(dev)?);
        // SAFETY: the caller passes a place for the id, which is 16 bytes.
        unsafe { put(uuid.cast(), bytes) }
    }

    cuDeviceTotalMem_v2(bytes, dev) |call| {
        call.device(dev)?;
        // SAFETY: the caller passes a place for the size.
        unsafe { put(bytes, call.config.memory) }
    }

    cuDeviceGetAttribute(value, attribute, dev) |call| {
        let device = call.device(dev)?;
        let found = device::attribute(attribute, device, &call.config);
        // SAFETY: the caller passes a place for the value.
        unsafe { put(value, found.ok_or(CUDA_ERROR_INVALID_VALUE)?) }
    }

    cuDeviceGetPCIBusId(id, len, dev) |call| {
        let text = device::pci_bus_id(call.device(dev)?);
        // SAFETY: the caller passes a buffer of `len` characters.
        unsafe { put_text(id, len, &text) }
    }

    cuDeviceGetByPCIBusId(dev, id) |call| {
        if id.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a NUL-terminated string.
        let id = unsafe { CStr::from_ptr(id) };
        let wanted = parse_bus_id(&id.to_string_lossy()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let found = (0..call.devices.len())
            .find(|&device| parse_bus_id(&device::pci_bus_id(device)) == Some(wanted));
        // SAFETY: the caller passes a place for the device.
        unsafe { put(dev, found.ok_or(CUDA_ERROR_INVALID_DEVICE)? as CUdevice) }
    }
}

/// Parses `[domain:]bus:device[.function]`, in hexadecimal.
fn parse_bus_id(text: &str) -> Option<(u32, u32, u32, u32)> {
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let (rest, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<_> = rest.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    Some((hex(domain)?, hex(bus)?, hex(device)?, hex(function)?))
}

/// Stores as much of a text as fits, and a NUL.
///
/// # Safety
/// `to` is null or valid for writes of `len` characters.
unsafe fn put_text(to: *mut c_char, len: c_int, text: &str) -> Outcome {
    let room = usize::try_from(len).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if to.is_null() || room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let shown = text.len().min(room - 1);
    // SAFETY: at most `room - 1` characters, into a buffer of `room` by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, shown) };
    // SAFETY: `shown` is less than `room`.
    let end = unsafe { to.add(shown) };
    // SAFETY: `shown` is less than `room`, so the end is inside the buffer.
    unsafe { end.write(0) };
    Ok(())
}
