//! What a session finds: violations and leaks.

use std::fmt;

use crate::config::Mode;
use crate::origin::Origin;
use crate::state;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Two conflicting accesses that neither stream order nor events nor a wait of the host order.
    Race,
    /// Memory touched after its free was enqueued or executed.
    UseAfterFree,
    /// Memory touched before its stream-ordered allocation was executed.
    UseBeforeAllocation,
    /// Memory freed twice.
    DoubleFree,
    /// An access beyond the end of its block.
    OutOfRange,
    /// A copy onto itself.
    Overlap,
    /// An address or pointer that no allocation holds, or a free of one that is not a start.
    UnknownAddress,
    /// A handle of an object that was destroyed, or that never was one.
    DanglingHandle,
    /// A driver call made inside a host function.
    CallInCallback,
    /// A launch of a kernel that nobody registered.
    UnknownKernel,
    /// A call in which a real driver crashes.
    Crash,
}

/// A misuse of the driver, found by the simulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What went wrong.
    pub kind: ViolationKind,
    /// The call that did it, or whose queued work did.
    pub call: &'static str,
    /// In words, the other call included where there is one.
    pub message: String,
    /// Number of the thread that was in the driver.
    pub thread: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: {}", self.kind, self.call, self.message)
    }
}

/// What was not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeakKind {
    /// A stream that was not destroyed.
    Stream,
    /// An event that was not destroyed.
    Event,
    /// A semaphore of another interface that was not destroyed.
    Semaphore,
    /// A created context that was not destroyed.
    Context,
    /// A device block that was not freed.
    Device,
    /// Pinned memory that was not freed or unregistered.
    Pinned,
    /// Reserved addresses that were not freed, with whatever is mapped in them.
    Addresses,
    /// Physical memory whose handle was not released.
    Physical,
    /// Memory of another interface that was not destroyed.
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
    /// A module, or a library, that was not unloaded.
    Module,
    /// A linker that was not destroyed.
    Linker,
    /// A host function that never ran, so nobody has released its user data.
    HostFunction,
}

/// An object of this session that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// What it is.
    pub kind: LeakKind,
    /// Its handle, or its address.
    pub handle: u64,
    /// Its size, for memory.
    pub bytes: usize,
    /// The call that made it.
    pub call: &'static str,
    /// Who made that call, after [`Session::keep_origins`](crate::Session::keep_origins).
    pub origin: Option<Origin>,
}

impl Leak {
    /// Takes leaked addresses out of the simulated driver, with what is mapped there, or leaked device
    /// memory, whose addresses are never used again, since whoever leaked it may remember them: for a
    /// program that leaks on purpose, and often. Other kinds, and managed memory, have a driver call
    /// that does it.
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
        Ok(())
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
}

impl Report {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.leaks.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} violations, {} leaks",
            self.violations.len(),
            self.leaks.len()
        )?;
        if let Mode::Threaded { .. } = self.mode {
            writeln!(f, "  again: {}", self.mode)?;
        }
        for violation in &self.violations {
            writeln!(f, "  violation: {violation}")?;
        }
        for leak in &self.leaks {
            writeln!(f, "  leak: {leak}")?;
        }
        Ok(())
    }
}
