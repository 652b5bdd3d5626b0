//! Access of one device to another's memory.

use std::ffi::c_int;

use cuda_sys::*;

use crate::call::{Call, put};

entries! {
    cuDeviceCanAccessPeer(can, dev, peer) |call| {
        let (device, peer) = (call.device(dev)?, call.device(peer)?);
        // SAFETY: the caller passes a place for the answer.
        unsafe { put(can, c_int::from(reaches(call, device, peer))) }
    }

    cuDeviceGetP2PAttribute(value, attribute, src, dst) |call| {
        let (src, dst) = (call.device(src)?, call.device(dst)?);
        if src == dst {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let reachable = c_int::from(reaches(call, src, dst));
        let found = match attribute {
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => 0,
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => reachable,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: the caller passes a place for the value.
        unsafe { put(value, found) }
    }

    cuCtxEnablePeerAccess(peer, flags) |call| {
        let current = call.current()?;
        let peer = call.context(peer)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (from, to) = (call.contexts[&current].device, call.contexts[&peer].device);
        if !reaches(call, from, to) {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let new = call.contexts.get_mut(&current).is_some_and(|own| own.peers.insert(peer));
        if new { Ok(()) } else { Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }

    cuCtxDisablePeerAccess(peer) |call| {
        let current = call.current()?;
        let peer = call.context(peer)?;
        let was = call.contexts.get_mut(&current).is_some_and(|own| own.peers.remove(&peer));
        call.revoke(current, peer);
        if was { Ok(()) } else { Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
    }
}

/// Returns whether a device can access a peer's memory; false for its own.
pub(super) fn reaches(call: &Call, device: usize, peer: usize) -> bool {
    device != peer && !call.devices[device].unreachable.contains(&peer)
}
