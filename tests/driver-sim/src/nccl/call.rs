//! One NCCL call: a driver call that returns NCCL's codes.

use std::ffi::{CString, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_sys::{CUDA_SUCCESS, CUresult};

use crate::call::{self, Call};
use crate::handle::Id;
use crate::nccl::raw::{Answer, Code, RawComm};
use crate::report::ViolationKind;
use crate::{state, thread};

/// The communicators, by handle, and the threads that are inside calls on them.
static INSIDE: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// Fault codes below this are NCCL's; others are CUDA's.
const CODES: u32 = 9;

/// Runs one function. No other thread may use the communicator `used` meanwhile.
pub(super) fn run(
    name: &'static str,
    used: Option<RawComm>,
    body: impl FnOnce(&mut Call) -> Answer,
) -> c_int {
    let visit = used.map(Visit::begin);
    let mut answer = None;
    let driver = call::run(name, |call| {
        if let Some(other) = visit.as_ref().and_then(|visit| visit.other) {
            let message = format!("thread {other} is inside a call on the same communicator");
            call.log.violation(ViolationKind::ConcurrentCalls, name, message);
        }
        answer = Some(body(call));
        Ok(())
    });
    let code = match (driver, answer) {
        (CUDA_SUCCESS, None) => Code::SUCCESS,
        (CUDA_SUCCESS, Some(answer)) => answer.err().unwrap_or(Code::SUCCESS),
        (refused, _) => from_driver(refused),
    };
    if code != Code::SUCCESS && code != Code::IN_PROGRESS {
        note_error(name, code);
    }
    code.0
}

/// Returns NCCL's code for a code of CUDA; a code below [`CODES`] is NCCL's already.
fn from_driver(code: CUresult) -> Code {
    match c_int::try_from(code.0) {
        Ok(own) if code.0 < CODES => Code(own),
        _ => Code::UNHANDLED_CUDA_ERROR,
    }
}

/// Records that a call failed. A failed call inside a group fails the group, unless it only makes or destroys a
/// reduction. A failed end of a group closes it.
fn note_error(name: &'static str, code: Code) {
    let mut state = state::lock();
    let message = format!("{name}: {}", code.text().to_string_lossy());
    state.nccl.last_error = CString::new(message).unwrap_or_default();
    let thread = thread::number();
    if name == "ncclGroupEnd" {
        state.nccl.groups.remove(&thread);
        return;
    }
    let group = state.nccl.groups.get_mut(&thread);
    if let Some(group) = group.filter(|_| !name.starts_with("ncclRedOp")) {
        group.error.get_or_insert(code);
    }
}

fn inside() -> MutexGuard<'static, Vec<(usize, u64)>> {
    INSIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's stay inside a call on a communicator.
struct Visit {
    handle: usize,
    /// A thread that was inside before.
    other: Option<u64>,
}

impl Visit {
    fn begin(comm: RawComm) -> Self {
        let (handle, own) = (comm.addr(), thread::number());
        let mut inside = inside();
        let other = inside.iter().find(|(of, _)| *of == handle).map(|&(_, thread)| thread);
        inside.push((handle, own));
        Self { handle, other }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let (own, mut inside) = (thread::number(), inside());
        inside.retain(|visit| *visit != (self.handle, own));
    }
}

/// Ends the visits of a communicator that is being removed, before its handle can be reused.
pub(super) fn end_visits(handle: usize) {
    inside().retain(|(of, _)| *of != handle);
}

impl Call {
    /// Returns the communicator of a handle.
    pub(super) fn communicator(&mut self, comm: RawComm) -> Answer<Id> {
        let found = self.nccl.communicators.resolve(comm);
        let found = self.found(found, "communicator", comm.addr(), |_| CUresult(0));
        found.map_err(|_| Code::INVALID_ARGUMENT)
    }

    /// Returns the communicator of a handle, for a function that needs it ready and unused by other threads.
    pub(super) fn ready_communicator(&mut self, comm: RawComm) -> Answer<Id> {
        let id = self.communicator(comm)?;
        let own = thread::number();
        let uses = |thread: u64, comms: &[Id]| thread != own && comms.contains(&id);
        let other = self.nccl.groups.iter().find(|(thread, group)| uses(**thread, &group.members));
        if let Some(other) = other.map(|(&thread, _)| thread) {
            let message =
                format!("the communicator is in a group that thread {other} has not ended");
            self.violation(ViolationKind::ConcurrentCalls, message);
        }
        match self.status(id) {
            Code::SUCCESS => Ok(id),
            Code::IN_PROGRESS => {
                let message = "what was done before with the communicator is in progress: \
                               ncclCommGetAsyncError has not returned ncclSuccess";
                self.violation(ViolationKind::NotReady, message);
                Err(Code::INVALID_ARGUMENT)
            }
            error => Err(error),
        }
    }
}

/// Returns NCCL's code for an error of CUDA inside an NCCL call.
pub(super) fn cuda(_: CUresult) -> Code {
    Code::UNHANDLED_CUDA_ERROR
}

/// Returns NCCL's code for an argument that CUDA refuses.
pub(super) fn argument(_: CUresult) -> Code {
    Code::INVALID_ARGUMENT
}

/// Stores a result through the caller's pointer.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    // SAFETY: this function's contract.
    unsafe { call::put(to, value) }.map_err(argument)
}
