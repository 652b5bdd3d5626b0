//! Threads that move host memory, in threaded mode.
//!
//! An operation that touches host memory has a beginning and an end, both steps of the schedule. Between them
//! a thread reads or writes the memory without a lock while the program runs. If the program touches the same
//! bytes meanwhile, Miri and the thread sanitizer see a data race, as there would be with a device. The
//! thread takes no lock and signals no other thread, so only the call that ends the operation orders the
//! thread's accesses before the program's.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::engine::work::{HostPtr, Op, Place, Work};
use crate::handle::Id;
use crate::state::State;

/// An access of a thread to host memory.
#[derive(Debug)]
enum Haul {
    Nothing,
    /// Reads host memory, for a device block.
    Gather {
        from: HostPtr,
        len: usize,
    },
    /// Writes host memory.
    Scatter {
        bytes: Vec<u8>,
        to: HostPtr,
    },
    /// Reads and writes host memory.
    Across {
        from: HostPtr,
        to: HostPtr,
        len: usize,
    },
}

/// An operation that has begun: the work, and the thread that moves its host memory.
#[derive(Debug)]
pub(crate) struct Moving {
    seq: u64,
    call: &'static str,
    works: Vec<Work>,
    mover: Mover,
}

/// A thread that moves host memory. Dropping this joins the thread, since the memory may be freed next.
#[derive(Debug)]
struct Mover(Option<JoinHandle<Vec<Vec<u8>>>>);

impl Mover {
    /// Starts the thread. `users` keep the pinned blocks of the hauls; see
    /// [`Pinned`](crate::memory::pinned::Pinned).
    fn start(hauls: Vec<Haul>, users: Vec<Arc<()>>) -> Self {
        Self(Some(std::thread::spawn(move || {
            let gathered = hauls.into_iter().map(Haul::run).collect();
            drop(users);
            gathered
        })))
    }

    /// Returns the bytes that each haul gathered.
    fn end(mut self) -> Vec<Vec<u8>> {
        self.0.take().map(join).unwrap_or_default()
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.take().map(join);
    }
}

fn join(thread: JoinHandle<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    // The thread only copies bytes, and cannot panic.
    thread.join().unwrap_or_default()
}

impl Haul {
    fn run(self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Gather { from, len } => {
                let mut bytes = vec![0; len];
                // SAFETY: the range was inside its pinned block at enqueue, and the block stays
                // while this thread has a count of its users; or the caller of the copy vouched for
                // its pageable memory and waits for the operation. `bytes` is new.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.0.cast_const(), bytes.as_mut_ptr(), len);
                }
                bytes
            }
            Self::Scatter { bytes, to } => {
                // SAFETY: `to` has room for the copied bytes; the program does not touch a
                // destination meanwhile.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0, bytes.len()) };
                Vec::new()
            }
            Self::Across { from, to, len } => {
                // SAFETY: both have `len` bytes, which the program does not touch until the
                // operation ends; they may overlap.
                unsafe { std::ptr::copy(from.0.cast_const(), to.0, len) };
                Vec::new()
            }
        }
    }
}

fn is_host(place: &Place) -> bool {
    matches!(place, Place::Pinned { .. } | Place::Pageable(_))
}

/// Returns whether a thread moves host memory for the work. Values are not moved, since streams and the host
/// may touch them at the same time. Nor are kernels.
pub(super) fn touches_host(work: &Work) -> bool {
    match work {
        Work::Copy { dst, src, .. } => is_host(dst) || is_host(src),
        Work::Fill { dst, .. } => is_host(dst),
        Work::Each(works) => works.iter().any(touches_host),
        _ => false,
    }
}

impl State {
    /// Starts a thread for an operation's accesses to host memory.
    pub(super) fn start(&mut self, op: Op) -> Moving {
        let Op { seq, call, work, .. } = op;
        let works = match work {
            Work::Each(works) => works,
            work => vec![work],
        };
        let mut users = Vec::new();
        let hauls = works.iter().map(|work| self.haul(call, work, &mut users)).collect();
        Moving { seq, call, works, mover: Mover::start(hauls, users) }
    }

    fn haul(&mut self, call: &'static str, work: &Work, users: &mut Vec<Arc<()>>) -> Haul {
        match work {
            Work::Copy { dst, src, bytes } => {
                let len = *bytes;
                let from = self.host_end(src, users);
                match (from, self.host_end(dst, users)) {
                    (Some(from), Some(to)) => Haul::Across { from, to, len },
                    (Some(from), None) if !is_host(dst) => Haul::Gather { from, len },
                    (None, Some(to)) if !is_host(src) => {
                        let mut bytes = vec![0; len];
                        if self.read(call, src, 0, &mut bytes) {
                            Haul::Scatter { bytes, to }
                        } else {
                            Haul::Nothing
                        }
                    }
                    _ => Haul::Nothing,
                }
            }
            Work::Fill { dst, pattern, width, count } => match self.host_end(dst, users) {
                Some(to) => {
                    Haul::Scatter { bytes: pattern.to_le_bytes()[..*width].repeat(*count), to }
                }
                None => Haul::Nothing,
            },
            _ => Haul::Nothing,
        }
    }

    /// Returns the host memory of a place, if it is host memory and still exists.
    fn host_end(&self, place: &Place, users: &mut Vec<Arc<()>>) -> Option<HostPtr> {
        match *place {
            Place::Pageable(pointer) => Some(pointer),
            Place::Pinned { block, offset } => {
                let pinned = self.pinned.blocks.get(&block)?;
                users.push(pinned.users.clone());
                Some(HostPtr(pinned.base.0.wrapping_add(offset)))
            }
            _ => None,
        }
    }

    /// Joins the thread of a stream's operation and completes the operation; returns `false` if none has
    /// begun.
    pub(super) fn land(&mut self, stream: Id) -> bool {
        let moving = self.streams.get_mut(&stream).and_then(|stream| stream.moving.take());
        let Some(Moving { seq, call, works, mover }) = moving else {
            return false;
        };
        for (work, gathered) in works.into_iter().zip(mover.end()) {
            if !touches_host(&work) {
                self.execute(stream, seq, call, work);
                continue;
            }
            let (dst, src) = match &work {
                Work::Copy { dst, src, .. } => (dst, Some(src)),
                Work::Fill { dst, .. } => (dst, None),
                _ => continue,
            };
            for place in src.into_iter().chain([dst]).filter(|place| is_host(place)) {
                // Reports it if the block was freed meanwhile.
                self.host_pointer(call, place, 0);
            }
            if !gathered.is_empty() {
                self.write(call, dst, 0, &gathered);
            }
        }
        self.complete(stream, seq);
        true
    }

    /// Joins all threads.
    pub(crate) fn land_all(&mut self) {
        let streams: Vec<Id> = self.streams.keys().copied().collect();
        for stream in streams {
            self.land(stream);
        }
    }
}
