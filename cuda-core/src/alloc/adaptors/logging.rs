//! Logs each allocation and free as a line, in a format that can be replayed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cuda_sys::CUdeviceptr;

use super::{Around, Ask, Given};
use crate::error::{Error, Result};
use crate::process::{driver, unless_panic};
use crate::stream::Stream;
use crate::util::{OnDrop, debug_by, lock, thread_number};

/// The first lines of a log.
const HEADING: &str = "# cuda-core allocation log, version 1\n\
                       time_ns,thread,device,stream,op,address,bytes\n";

/// An allocator that logs what passes through it.
///
/// Each allocation and free is a line of comma-separated values:
///
/// | column | |
/// |---|---|
/// | `time_ns` | nanoseconds since the log began |
/// | `thread` | a number that each thread has of its own |
/// | `device` | the device's ordinal |
/// | `stream` | [`Stream::id`] |
/// | `op` | `allocate`, `allocate_failed`, `deallocate` or `deallocate_failed` |
/// | `address` | of the block, `0x` and hexadecimal digits; `0x0` where there is none |
/// | `bytes` | as asked for |
///
/// Lines that begin with `#` are comments. An address is free from its `deallocate` until its next
/// `allocate`; a `deallocate_failed` revokes the preceding `deallocate` of the same address.
/// `cargo xtask replay` reads such a log, draws it, and runs it against allocators to compare them.
///
/// Lines are written one at a time, in an order in which the operations can have happened. If the writer
/// fails or panics, the log ends there and the allocator continues: [`Logging::flush`] returns the error, and
/// [`Logging::lost`] the number of missing lines.
///
/// The writer runs under the lock of the log, which allocations and drops of buffers take. So a thread that
/// allocates or drops a buffer must hold no lock that the writer takes.
///
/// ```no_run
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::Logging;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let allocator = Logging::to_file(Allocator::driver_pool(), "allocations.csv")?;
/// // ...
/// allocator.flush()?;
/// # Ok(())
/// # }
/// ```
pub struct Logging<A> {
    inner: A,
    began: Instant,
    log: Mutex<Log>,
    lost: AtomicU64,
}

struct Log {
    writer: Box<dyn Write + Send>,
    /// The error that ended the log.
    error: Option<io::Error>,
}

thread_local! {
    /// Whether the thread is writing a line.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

impl<A> Logging<A> {
    /// Writes a heading to `writer`, and from now on logs what passes through `inner`. Each line is written
    /// at once, so the writer should be buffered.
    ///
    /// # Errors
    /// The writer's, when it writes the heading.
    pub fn new(inner: A, writer: impl Write + Send + 'static) -> io::Result<Self> {
        let mut writer = Box::new(writer);
        writer.write_all(HEADING.as_bytes())?;
        Ok(Self {
            inner,
            began: Instant::now(),
            log: Mutex::new(Log { writer, error: None }),
            lost: AtomicU64::new(0),
        })
    }

    /// Logs to a file, which is created or overwritten.
    ///
    /// # Errors
    /// The operating system's.
    pub fn to_file(inner: A, path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(inner, BufWriter::new(File::create(path)?))
    }

    /// Makes the writer write what it has buffered. An allocator that lives until the process ends,
    /// like the default one, is never dropped: flush it before that.
    ///
    /// # Errors
    /// The writer's, or the error that ended the log; an error if the writer itself flushes the log that it
    /// is writing; an error in a fork's child.
    pub fn flush(&self) -> io::Result<()> {
        if is_forked() {
            return Err(io::Error::other(Error::Forked));
        }
        let Some(_writing) = begin_writing() else {
            return Err(io::Error::other("the log is being written on this thread"));
        };
        let mut log = lock(&self.log);
        log.attempt(|writer| writer.flush());
        match &log.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// The number of lines that could not be written, including those of the writer's own operations.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn line(&self, stream: &Stream, op: &str, address: CUdeviceptr, bytes: usize) {
        let (thread, device) = (thread_number(), stream.device().ordinal());
        let stream = stream.id();
        let writing = if is_forked() { None } else { begin_writing() };
        let written = writing.is_some_and(|_writing| {
            let mut log = lock(&self.log);
            // Taken under the lock, so that times never decrease from line to line.
            let time = self.began.elapsed().as_nanos();
            let line = format!("{time},{thread},{device},{stream},{op},{address:#x},{bytes}\n");
            log.attempt(|writer| writer.write_all(line.as_bytes()))
        });
        if !written {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Log {
    /// Calls `write` unless an earlier write has failed. Returns whether the log is free of errors.
    fn attempt(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
        if self.error.is_none() {
            let writer = &mut *self.writer;
            let panicked = || Err(io::Error::other("the writer of the log panicked"));
            self.error = unless_panic(|| write(writer)).unwrap_or_else(panicked).err();
        }
        self.error.is_none()
    }
}

/// Whether this is a fork's child, where a thread that does not exist may hold the log's lock.
fn is_forked() -> bool {
    matches!(driver::ensure_not_gone(), Err(Error::Forked))
}

/// Held while this thread writes a line: a writer that allocates must not take the lock again.
fn begin_writing() -> Option<OnDrop<impl FnOnce()>> {
    let writing = WRITING.try_with(|flag| flag.replace(true)).unwrap_or(true);
    (!writing).then(|| OnDrop::new(|| WRITING.set(false)))
}

debug_by! { [A: std::fmt::Debug] Logging<A>: |it| "Logging" { inner: it.inner, lost: it.lost(); .. } }

adaptor!(Logging);

impl<A> Around for Logging<A> {
    fn allocating(&self, stream: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        let rollback = OnDrop::new(|| self.line(stream, "allocate_failed", 0, bytes));
        let address = ask()?;
        rollback.disarm();
        self.line(stream, "allocate", address, bytes);
        Ok(address)
    }

    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let Given { stream, address, bytes } = block;
        // Logged before the call: after it, another thread may get the address and log its allocation.
        self.line(stream, "deallocate", address, bytes);
        let rollback = OnDrop::new(|| self.line(stream, "deallocate_failed", address, bytes));
        give(bytes)?;
        rollback.disarm();
        Ok(())
    }
}
