//! Queries of communicators, and of NCCL itself.

use std::ffi::{c_int, c_void};

use crate::entry::Address;
use crate::nccl::call::put;
use crate::nccl::raw::{Code, RawComm, Text, VERSION};
use crate::state;

nccl_entries! {
    ncclGetVersion(version: *mut c_int) |call| {
        let own = call.log.nccl_version.unwrap_or(VERSION);
        // SAFETY: the caller passes a place for the number.
        unsafe { put(version, own) }
    }

    ncclCommGetAsyncError(comm: RawComm, error: *mut Code) |call| {
        let id = call.communicator(comm)?;
        let status = call.poll_communicator(id);
        // SAFETY: the caller passes a place for the code.
        unsafe { put(error, status) }
    }

    ncclCommCount(comm: RawComm, count: *mut c_int) |call| {
        let id = call.ready_communicator(comm)?;
        let clique = call.nccl.communicators[&id].clique;
        let ranks = clique.map_or(0, |clique| call.nccl.cliques[&clique].ranks.len());
        // SAFETY: the caller passes a place for the number.
        unsafe { put(count, ranks as c_int) }
    }

    ncclCommCuDevice(comm: RawComm, device: *mut c_int) |call| {
        let id = call.ready_communicator(comm)?;
        let own = call.nccl.communicators[&id].device;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(device, own as c_int) }
    }

    ncclCommUserRank(comm: RawComm, rank: *mut c_int) |call| {
        let id = call.ready_communicator(comm)?;
        let own = call.nccl.communicators[&id].rank;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(rank, own as c_int) }
    }
}

/// `ncclGetErrorString` of the simulated NCCL.
///
/// # Safety
/// None is needed; C's functions are unsafe to call.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetErrorString(code: Code) -> Text {
    state::lock().log.count("ncclGetErrorString");
    code.text().as_ptr()
}

/// `ncclGetLastError` of the simulated NCCL. The text is valid until the next error.
///
/// # Safety
/// None is needed: the communicator is not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetLastError(_: RawComm) -> Text {
    let mut state = state::lock();
    state.log.count("ncclGetLastError");
    state.nccl.last_error.as_ptr()
}

/// The symbols of functions that return texts, and never fail.
pub(in crate::nccl) const TEXTS: &[(&str, Address)] = &[
    ("ncclGetErrorString", || ncclGetErrorString as *const c_void),
    ("ncclGetLastError", || ncclGetLastError as *const c_void),
];
