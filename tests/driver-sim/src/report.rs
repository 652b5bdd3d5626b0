//! The results of a session: violations and leaks.

use std::fmt;

use crate::config::Mode;
use crate::origin::Origin;
use crate::state;

/// The kind of a misuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Two conflicting accesses that no stream order, event or wait on the host orders.
    Race,
    /// An access to memory after its free was enqueued or executed.
    UseAfterFree,
    /// An access to memory before its stream-ordered allocation was executed.
    UseBeforeAllocation,
    /// Memory freed twice.
    DoubleFree,
    /// An access beyond the end of its block.
    OutOfRange,
    /// A copy onto itself.
    Overlap,
    /// An address or pointer that no allocation contains, or a free of an address that is not the start of
    /// one.
    UnknownAddress,
    /// A handle of an object that was destroyed, or that never existed.
    DanglingHandle,
    /// A driver call made inside a function that the driver calls.
    CallInCallback,
    /// A launch of a kernel for which no closure is registered.
    UnknownKernel,
    /// A call for which a stream's queue had no room: if nothing makes the stream continue, a real driver
    /// never returns.
    QueueFull,
    /// A loop of a graph that runs so often that it is taken for endless: on a real device its launch would
    /// never complete.
    EndlessLoop,
    /// A panic in the closure of a kernel.
    KernelPanic,
    /// The closure of a kernel accesses memory otherwise than its regions declare.
    Undeclared,
    /// A call in which a real driver crashes.
    Crash,
    /// The ranks of a communicator differ in the operation, its count, type, root or reduction, or in what
    /// they send and receive.
    Mismatch,
    /// An operation of a communicator, or one end of a message, that only some ranks have begun when the
    /// session ends.
    MissingRank,
    /// A stream, memory or a current context of a device other than the communicator's.
    WrongDevice,
    /// Two threads that use one communicator at the same time.
    ConcurrentCalls,
    /// A communicator, or a stream that NCCL uses, that is changed or used during an operation whose end the
    /// program has not seen.
    NotReady,
    /// A communicator that is destroyed, not aborted, before its work was waited for.
    InFlight,
    /// Operations of communicators that wait for each other in a cycle.
    Deadlock,
}

/// A misuse of the driver that the simulator detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The kind of the misuse.
    pub kind: ViolationKind,
    /// The call that committed the misuse, or that enqueued the work that did.
    pub call: &'static str,
    /// A description, which names the other call if there is one.
    pub message: String,
    /// Number of the thread that made the driver call.
    pub thread: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: {}", self.kind, self.call, self.message)
    }
}

/// Kinds of objects that were not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeakKind {
    /// A stream that was not destroyed.
    Stream,
    /// An event that was not destroyed.
    Event,
    /// An external semaphore that was not destroyed.
    Semaphore,
    /// A created context that was not destroyed.
    Context,
    /// A device block that was not freed.
    Device,
    /// Pinned memory that was not freed or unregistered.
    Pinned,
    /// Reserved addresses that were not freed, with whatever is mapped in them.
    Addresses,
    /// Physical memory with a handle that was not released.
    Physical,
    /// External memory that was not destroyed.
    External,
    /// An array, mipmapped or not, that was not destroyed.
    Array,
    /// A texture that was not destroyed.
    Texture,
    /// A surface that was not destroyed.
    Surface,
    /// A pool that was not destroyed.
    Pool,
    /// A graph that was not destroyed.
    Graph,
    /// An instantiated graph that was not destroyed.
    GraphExec,
    /// A user object that graphs keep, or that the program did not release.
    UserObject,
    /// A communicator of NCCL that was not destroyed or aborted.
    Communicator,
    /// Memory registered with a communicator of NCCL; the registration ends with its communicator.
    Registration,
    /// A module, or a library, that was not unloaded.
    Module,
    /// A linker that was not destroyed.
    Linker,
    /// A host function that never ran, so its user data was not released.
    HostFunction,
}

/// An object of this session that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// The kind of the object.
    pub kind: LeakKind,
    /// The object's handle or address.
    pub handle: u64,
    /// The memory's size, for memory.
    pub bytes: usize,
    /// The call that made the object.
    pub call: &'static str,
    /// The backtrace of that call, after [`Session::keep_origins`](crate::Session::keep_origins).
    pub origin: Option<Origin>,
}

impl Leak {
    /// Removes leaked addresses, with what is mapped there, or leaked device memory from the simulated
    /// driver. For a program that leaks on purpose, and often. The addresses are never reused, since the code
    /// that leaked them may still hold them. Other kinds, and managed memory, are released by a driver call.
    pub fn discard(&self) {
        match self.kind {
            LeakKind::Addresses => state::lock().discard_reservation(self.handle),
            LeakKind::Device => state::lock().discard_block(self.handle),
            _ => {}
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x} from {}", self.kind, self.handle, self.call)?;
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        match self.origin.as_ref().and_then(|origin| origin.caller(self.call)) {
            Some(caller) => write!(f, ", at {caller}"),
            None => Ok(()),
        }
    }
}

/// Everything that a session found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// When queued work ran.
    pub mode: Mode,
    /// Misuses, in the order of their discovery.
    pub violations: Vec<Violation>,
    /// Objects that still exist.
    pub leaks: Vec<Leak>,
    /// Number of queued operations that are not complete.
    pub pending: u64,
}

impl Report {
    /// Returns whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.leaks.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let misuse = number(self.violations.len(), "misuse");
        let left = number(self.leaks.len(), "object");
        writeln!(f, "{misuse} of the driver, {left} not released")?;
        if let Mode::Threaded { .. } = self.mode {
            writeln!(f, "  again: {}", self.mode)?;
        }
        for violation in &self.violations {
            writeln!(f, "  violation: {violation}")?;
        }
        for leak in &self.leaks {
            writeln!(f, "  leak: {leak}")?;
        }
        if self.leaks.is_empty() {
            return Ok(());
        }
        if self.pending > 0 {
            let queued = number(self.pending as usize, "operation");
            writeln!(f, "  {queued} still queued: wait for that work, then release")?;
        }
        if self.leaks.iter().all(|leak| leak.origin.is_none()) {
            let how = "`Session::keep_origins` or CUDA_SIM_ORIGINS=1";
            writeln!(f, "  where they were made: {how}")?;
        }
        Ok(())
    }
}

/// Formats misuses without leaks, one per line.
pub(crate) fn misuses(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|violation| format!("\n  violation: {violation}"));
    format!("{} of the driver:{}", number(violations.len(), "misuse"), lines.collect::<String>())
}

fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
