//! One driver call: counts it, injects faults, resolves handles, and waits for work.

use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuda_sys::*;

use crate::engine::clock::{Clock, Point};
use crate::engine::enqueue::Submission;
use crate::engine::host::DOOR;
use crate::engine::stream::{Stream, StreamKind};
use crate::engine::work::Place;
use crate::fault::{Hit, Instead};
use crate::handle::{Dangling, Id};
use crate::hold::Held;
use crate::memory::place::Owner;
use crate::report::ViolationKind;
use crate::state::{self, State};
use crate::{Mode, thread};

/// The result of a driver function: success, or an error code.
pub(crate) type Outcome<T = ()> = Result<T, CUresult>;

/// A driver function in progress on the calling thread; holds the lock on the driver.
pub(crate) struct Call {
    state: Option<MutexGuard<'static, State>>,
    pub(crate) name: &'static str,
}

/// How long a call waits for room in a queue before it is reported.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);

/// Returns whether the function may be called inside a host function and before `cuInit`.
fn works_always(name: &str) -> bool {
    matches!(name, "cuGetErrorName" | "cuGetErrorString")
}

fn works_before_init(name: &str) -> bool {
    matches!(
        name,
        "cuInit"
            | "cuDriverGetVersion"
            | "ncclGetVersion"
            | "ncclGetUniqueId"
            | "ncclGroupStart"
            | "ncclGroupEnd"
    )
}

/// Returns whether the function works although the current context is lost.
fn survives(name: &str) -> bool {
    let is_about_current = matches!(
        name,
        "cuCtxGetCurrent"
            | "cuCtxSetCurrent"
            | "cuCtxPushCurrent_v2"
            | "cuCtxPopCurrent_v2"
            | "cuCtxGetDevice"
            | "cuThreadExchangeStreamCaptureMode"
            | "ncclCommAbort"
            | "ncclCommCount"
            | "ncclCommCuDevice"
            | "ncclCommDestroy"
            | "ncclCommGetAsyncError"
            | "ncclCommUserRank"
    );
    is_about_current || works_before_init(name) || name.starts_with("cuDevice")
}

/// Runs one driver function.
pub(crate) fn run(name: &'static str, body: impl FnOnce(&mut Call) -> Outcome) -> CUresult {
    let arrival = DOOR.arrive();
    let mut call = Call { state: Some(state::lock()), name };
    call.host.admit(arrival);
    let outcome = call.admit().and_then(|late| {
        call.stay_while_held();
        let outcome = body(&mut call);
        call.make_room();
        late.map_or(outcome, |hit| Err(call.strike(hit)))
    });
    if !thread::runs_callback() {
        call.drift();
    }
    // If a kernel faulted during this call, the call returns the fault.
    let outcome = match call.faulted.take() {
        Some(code) => outcome.and(Err(code)),
        None => outcome,
    };
    outcome.err().unwrap_or(CUDA_SUCCESS)
}

impl Deref for Call {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_deref().expect("the lock is released inside `wait` alone")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect("the lock is released inside `wait` alone")
    }
}

impl Call {
    /// Counts the call. An error refuses the call; a hit is the injected fault that it meets.
    fn admit(&mut self) -> Outcome<Option<Hit>> {
        let name = self.name;
        self.log.count(name);
        if works_always(name) {
            return Ok(None);
        }
        if thread::runs_callback() {
            let message = "called inside a function that the driver calls";
            self.violation(ViolationKind::CallInCallback, message);
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        if self.gone {
            return Err(CUDA_ERROR_DEINITIALIZED);
        }
        let thread = thread::number();
        // Every fault counts the call, even after an earlier fault in the list fires.
        let mut hit = None;
        for fault in &mut self.log.faults {
            hit = hit.or(fault.observe(name, thread));
        }
        if let Some(after) = hit.and_then(|hit| hit.ends_waits) {
            self.log.waits_end = Some(Instant::now() + after);
        }
        let late = match hit {
            Some(hit) if hit.instead == Instead::Nothing => return Err(self.strike(hit)),
            late => late,
        };
        if !self.initialized && !works_before_init(name) {
            return Err(CUDA_ERROR_NOT_INITIALIZED);
        }
        match self.current().ok().and_then(|id| self.contexts[&id].lost) {
            Some(code) if !survives(name) => Err(code),
            _ => Ok(late),
        }
    }

    /// Applies a fault to this call, and returns the code that the call returns.
    fn strike(&mut self, hit: Hit) -> CUresult {
        if hit.loses_context {
            self.lose_context(hit.code);
        }
        hit.code
    }

    /// Loses the current context, or every context if none is current.
    fn lose_context(&mut self, code: CUresult) {
        match self.current() {
            Ok(id) => {
                if let Some(context) = self.contexts.get_mut(&id) {
                    context.lost = Some(code);
                }
            }
            Err(_) => self.contexts.values_mut().for_each(|context| context.lost = Some(code)),
        }
    }

    /// Reports a misuse in this call.
    pub(crate) fn violation(&mut self, kind: ViolationKind, message: impl Into<String>) {
        let name = self.name;
        self.log.violation(kind, name, message.into());
    }

    /// Resolves a device address that this call uses to the memory there.
    pub(crate) fn device_memory(&mut self, address: CUdeviceptr, bytes: usize) -> Outcome<Place> {
        let name = self.name;
        self.device_place(name, address, bytes)
    }

    /// Resolves a host address that this call uses to the memory there.
    pub(crate) fn host_memory(&mut self, pointer: *mut u8, bytes: usize) -> Outcome<Place> {
        let name = self.name;
        self.host_place(name, pointer, bytes)
    }

    /// Allocates a block, and returns its id and address.
    pub(crate) fn allocate(
        &mut self,
        device: usize,
        owner: Owner,
        bytes: usize,
    ) -> Outcome<(Id, u64)> {
        let name = self.name;
        self.new_block(name, device, owner, bytes)
    }

    /// Enqueues this call's work.
    pub(crate) fn submit(&mut self, submission: Submission) -> Outcome<Option<Point>> {
        let name = self.name;
        self.enqueue(name, submission)
    }

    /// Returns the calling thread's current context.
    pub(crate) fn current(&self) -> Outcome<Id> {
        let stack = self.stacks.get(&thread::number());
        let entry = stack.and_then(|stack| stack.last()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if self.contexts.contains_key(&entry.context) {
            Ok(entry.context)
        } else {
            Err(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        }
    }

    pub(crate) fn current_device(&self) -> Outcome<usize> {
        self.current().map(|id| self.contexts[&id].device)
    }

    /// Returns the index of the device with this ordinal.
    pub(crate) fn device(&self, device: CUdevice) -> Outcome<usize> {
        let index = usize::try_from(device).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
        if index < self.devices.len() { Ok(index) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
    }

    pub(crate) fn context(&mut self, handle: CUcontext) -> Outcome<Id> {
        let found = self.contexts.resolve(handle);
        self.found(found, "context", handle.addr(), |dangling| match dangling {
            Dangling::Destroyed => CUDA_ERROR_CONTEXT_IS_DESTROYED,
            Dangling::Null | Dangling::NeverIssued => CUDA_ERROR_INVALID_CONTEXT,
        })
    }

    /// Returns the context of a handle, or the current one for null.
    pub(crate) fn context_or_current(&mut self, handle: CUcontext) -> Outcome<Id> {
        if handle.is_null() { self.current() } else { self.context(handle) }
    }

    pub(crate) fn event(&mut self, handle: CUevent) -> Outcome<Id> {
        let found = self.events.resolve(handle);
        self.found(found, "event", handle.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn pool(&mut self, handle: CUmemoryPool) -> Outcome<Id> {
        let found = self.pools.resolve(handle);
        self.found(found, "pool", handle.addr(), |_| CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn graph(&mut self, handle: CUgraph) -> Outcome<Id> {
        let found = self.graphs.graphs.resolve(handle);
        self.found(found, "graph", handle.addr(), |_| CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn node(&mut self, handle: CUgraphNode) -> Outcome<Id> {
        let found = self.graphs.nodes.resolve(handle);
        self.found(found, "node", handle.addr(), |_| CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn exec(&mut self, handle: CUgraphExec) -> Outcome<Id> {
        let found = self.graphs.execs.resolve(handle);
        self.found(found, "graph exec", handle.addr(), |_| CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn found(
        &mut self,
        found: Result<Id, Dangling>,
        what: &str,
        handle: usize,
        code: impl FnOnce(Dangling) -> CUresult,
    ) -> Outcome<Id> {
        found.map_err(|dangling| {
            let how = match dangling {
                Dangling::Null => None,
                Dangling::Destroyed => Some("was destroyed"),
                Dangling::NeverIssued => Some("never existed"),
            };
            if let Some(how) = how {
                let message = format!("the {what} {handle:#x} {how}");
                self.violation(ViolationKind::DanglingHandle, message);
            }
            code(dangling)
        })
    }

    /// Returns the stream of a handle; the default streams' handles mean those of the current context.
    pub(crate) fn stream(&mut self, handle: CUstream) -> Outcome<Id> {
        let id = match handle.addr() {
            0 | 1 => {
                let current = self.current()?;
                self.contexts[&current].legacy
            }
            2 => self.per_thread_stream()?,
            _ => {
                let found = self.streams.resolve(handle);
                self.found(found, "stream", handle.addr(), |_| CUDA_ERROR_INVALID_HANDLE)?
            }
        };
        let context = self.streams[&id].context;
        match self.contexts.get(&context).and_then(|context| context.lost) {
            Some(code) => Err(code),
            None => Ok(id),
        }
    }

    fn per_thread_stream(&mut self) -> Outcome<Id> {
        let current = self.current()?;
        let thread = thread::number();
        if let Some(&id) = self.contexts[&current].per_thread.get(&thread) {
            return Ok(id);
        }
        let device = self.contexts[&current].device;
        let id = self.new_stream(Stream::new(current, device, StreamKind::PerThread { thread }, 0));
        if let Some(context) = self.contexts.get_mut(&current) {
            context.per_thread.insert(thread, id);
        }
        Ok(id)
    }

    /// Waits until all work of these streams is complete, and joins their clocks into the host's.
    pub(crate) fn synchronize(&mut self, streams: &[Id]) {
        let mut targets = Vec::new();
        for &id in streams {
            if let Some(stream) = self.streams.get(&id) {
                targets.push((Point { stream: id, seq: stream.issued }, stream.clock.clone()));
            }
        }
        for (point, _) in &targets {
            self.drive(*point);
        }
        for (_, clock) in &targets {
            self.host_join(clock);
        }
        self.trim_idle_pools();
    }

    /// Waits for all streams of a device, in every context.
    pub(crate) fn synchronize_device(&mut self, device: usize) {
        let streams = self.streams.iter().filter(|(_, stream)| stream.device == device);
        self.synchronize(&streams.map(|(&id, _)| id).collect::<Vec<_>>());
    }

    pub(crate) fn synchronize_context(&mut self, context: Id) {
        let streams = self.streams.iter().filter(|(_, stream)| stream.context == context);
        self.synchronize(&streams.map(|(&id, _)| id).collect::<Vec<_>>());
    }

    /// Waits until `target` is complete. The lock is released while a host function runs.
    pub(crate) fn drive(&mut self, target: Point) {
        self.drift();
        while !self.advance(target) {
            // NCCL's own threads continue while a call waits.
            if self.run_jobs() {
                continue;
            }
            let patience = if self.waits_for_value() {
                // Another stream, or the host without a call, may write the value.
                self.advance_all();
                Some(Duration::from_millis(1))
            } else {
                None
            };
            if !self.is_complete(target) {
                self.wait(patience);
            }
        }
    }

    /// Blocks while a test [holds](crate::Hold) this call.
    fn stay_while_held(&mut self) {
        let name = self.name;
        let awaited = |held: &&mut Held| held.function == name && !held.is_there;
        let Some(held) = self.log.held.as_mut().filter(awaited) else {
            return;
        };
        held.is_there = true;
        let number = held.number;
        state::CHANGED.notify_all();
        let here = |held: &Held| held.number == number;
        while self.log.held.as_ref().is_some_and(here) {
            self.wait(None);
        }
    }

    /// If this call has filled a stream's queue, runs the oldest work there until the queue has room, and
    /// waits while that work is stalled.
    fn make_room(&mut self) {
        let Some(id) = self.overfull.take() else {
            return;
        };
        let patience = self.log.queue_patience.unwrap_or(QUEUE_PATIENCE);
        let deadline = Instant::now() + patience;
        while let Some(stream) = self.streams.get(&id).filter(|stream| stream.is_overfull()) {
            let oldest = Point { stream: id, seq: stream.completed + 1 };
            if self.advance(oldest) {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let message = format!(
                    "the queue of stream #{id} has had no room for {patience:?}: a driver goes on \
                     waiting until the stalled stream continues"
                );
                return self.violation(ViolationKind::QueueFull, message);
            }
            if self.waits_for_value() {
                // Another stream, or the host without a call, may write the value.
                self.advance_all();
                self.wait(Some(left.min(Duration::from_millis(1))));
            } else {
                self.wait(Some(left));
            }
        }
    }

    pub(crate) fn wait(&mut self, patience: Option<Duration>) {
        let arrival = self.host.arrival();
        let Some(state) = self.state.take() else {
            return;
        };
        let mut state = match patience {
            None => state::CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = state::CHANGED.wait_timeout(state, patience);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.host.readmit(arrival);
        self.state = Some(state);
    }

    /// Returns to the devices what pools cache above their release threshold.
    fn trim_idle_pools(&mut self) {
        for pool in self.pools.values_mut() {
            let keep = usize::try_from(pool.release_threshold).unwrap_or(usize::MAX);
            pool.trim(keep);
        }
    }

    /// Answers a query of `point`: whether its work is complete. If `polls`, the number of queries so far,
    /// exceeds the configured number, the query runs the work first.
    pub(crate) fn query(&mut self, point: Point, clock: &Clock, polls: u32) -> bool {
        if polls > self.polls || self.mode == Mode::Eager {
            self.advance(point);
            if self.waits_for_value() {
                self.advance_all();
            }
        }
        let done = self.is_complete(point);
        if done {
            self.host_join(clock);
        }
        done
    }
}

/// Stores a result through the caller's pointer.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a write by this function's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// Stores a result through a pointer that may be null.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
pub(crate) unsafe fn put_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, so valid for a write by this function's contract.
        unsafe { to.write(value) };
    }
}

/// Returns the slice that a caller passes as a pointer and a count.
///
/// # Safety
/// `first` is null, or points to `len` values that stay valid during the caller's call.
pub(crate) unsafe fn list<'a, T>(first: *const T, len: usize) -> Outcome<&'a [T]> {
    match (len, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(CUDA_ERROR_INVALID_VALUE),
        // SAFETY: not null, so valid by this function's contract.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(first, len) }),
    }
}
