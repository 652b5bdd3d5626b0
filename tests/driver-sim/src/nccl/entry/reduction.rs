//! Creates and destroys reductions.

use std::ffi::{c_int, c_void};

use crate::nccl::call::{argument, put};
use crate::nccl::number::Number;
use crate::nccl::operation::Factor;
use crate::nccl::raw::{BUILT_IN, Code, RawComm, SCALAR_ON_DEVICE};
use crate::report::ViolationKind;

nccl_entries! {
    ncclRedOpCreatePreMulSum(
        op: *mut c_int,
        scalar: *mut c_void,
        number: c_int,
        residence: c_int,
        comm: RawComm,
    ) of comm |call| {
        let id = call.ready_communicator(comm)?;
        let number = Number::from_raw(number).ok_or(Code::INVALID_ARGUMENT)?;
        if op.is_null() || scalar.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let factor = if residence == SCALAR_ON_DEVICE {
            let name = call.name;
            let place = call.device_place(name, scalar.addr() as u64, number.width());
            Factor::At(place.map_err(argument)?)
        } else {
            let mut bytes = vec![0_u8; number.width()];
            // SAFETY: the caller passes a number of this width; `bytes` has as many.
            unsafe {
                std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), bytes.len());
            }
            Factor::Number(bytes)
        };
        let own = call.nccl.communicators.get_mut(&id).ok_or(Code::INVALID_ARGUMENT)?;
        // The least free number, so that a stale number means another reduction.
        let free = |new: &c_int| !own.reductions.contains_key(new);
        let new = (BUILT_IN..).find(free).ok_or(Code::INTERNAL_ERROR)?;
        own.reductions.insert(new, (number, factor));
        // SAFETY: the caller passes a place for the number.
        unsafe { put(op, new) }
    }

    ncclRedOpDestroy(op: c_int, comm: RawComm) of comm |call| {
        let id = call.communicator(comm)?;
        let own = call.nccl.communicators.get_mut(&id).ok_or(Code::INVALID_ARGUMENT)?;
        if own.reductions.remove(&op).is_some() {
            return Ok(());
        }
        let message = format!("the communicator has no reduction {op}");
        call.violation(ViolationKind::DanglingHandle, message);
        Err(Code::INVALID_ARGUMENT)
    }
}
