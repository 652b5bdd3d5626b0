//! Copying between borrowed slices and pinned chunks.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::driver;
use crate::error::{Error, Result};

/// Threads that touch pinned memory at this moment, each counted in one lane or another: many of
/// them at once would be slow in one.
static BUSY: [Lane; 16] = [const { Lane(AtomicUsize::new(0)) }; 16];

/// Has cache lines of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    fn mine() -> &'static Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % BUSY.len();
        }
        // A thread whose locals are gone takes the first.
        &BUSY[LANE.try_with(|lane| *lane).unwrap_or(0)]
    }
}

/// Touching pinned memory, which the driver takes away as the process exits.
pub(super) struct Pass(&'static Lane);

impl Pass {
    /// [`None`] once the process exits.
    pub(super) fn enter() -> Option<Self> {
        let lane = Lane::mine();
        lane.0.fetch_add(1, Ordering::SeqCst);
        let pass = Self(lane);
        // Either this sees that the driver is going, or `park` sees this.
        fence(Ordering::SeqCst);
        (!driver::is_gone()).then_some(pass)
    }

    /// [`Pass::enter`], or why not.
    pub(super) fn or_gone() -> Result<Self> {
        Self::enter().ok_or_else(|| driver::gone().unwrap_or(Error::Exiting))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until nobody copies borrowed slices any more; called as the process exits, when nobody can
/// begin. A piece takes some microseconds.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    fence(Ordering::SeqCst);
    for lane in &BUSY {
        while lane.0.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Where in the machine a copy leaves the bytes that it has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// In memory: past the caches, where the processor can, since reading what is to be overwritten
    /// would take a third of the memory's bandwidth.
    PastCaches,
    /// In the caches of the core that copies.
    ThroughCaches,
    /// In the cache that all cores share, where [the processor can](can_demote) send them: devices
    /// read from there without going to memory, or asking a core for what it has.
    ToSharedCache,
}

/// Copies `len` bytes. They are there, for other threads and for devices, when this returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn copy(path: Path, from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match path {
        // SAFETY: the caller's promise, which is that of both.
        Path::PastCaches => return unsafe { by_lines(from, to, len, lines::stream) },
        // SAFETY: as above.
        Path::ToSharedCache => return unsafe { by_lines(from, to, len, lines::demote) },
        Path::ThroughCaches => {}
    }
    // Other processors decide by themselves.
    let _ = path;
    // SAFETY: `from` and `to` are good for `len` bytes and do not overlap, by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Whether the processor has `CLDEMOTE`; others take it for no operation.
pub(super) fn can_demote() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *KNOWN.get_or_init(lines::can_demote)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Copies `len` bytes, all but the ends by lines of the caches.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]. `lines` copies so many lines, at least one, to where a line
/// begins.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn by_lines(
    from: *const u8,
    to: *mut u8,
    len: usize,
    lines: unsafe fn(*const u8, *mut u8, usize),
) {
    let head = to.align_offset(lines::LINE).min(len);
    let body = (len - head) / lines::LINE;
    // SAFETY: the first `head` bytes of both sides.
    unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
    if body > 0 {
        // SAFETY: whole lines, one at least, within the `len` bytes of both sides.
        unsafe { lines(from.wrapping_add(head), to.wrapping_add(head), body) };
    }
    let done = head + body * lines::LINE;
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the rest of both sides.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len - done) };
}

/// Lines of the caches, by instructions that Rust has no words for. Written out, since a build
/// without optimisation would make a call of each intrinsic.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines {
    pub(super) const LINE: usize = 64;

    /// Copies lines: how each sixteen bytes are stored, and what comes behind each line and behind
    /// all.
    macro_rules! copy_lines {
        ($from:ident, $to:ident, $lines:ident, $store:literal, $line:literal, $all:literal) => {
            std::arch::asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                concat!($store, " [{to}], {a}"),
                concat!($store, " [{to} + 16], {b}"),
                concat!($store, " [{to} + 32], {c}"),
                concat!($store, " [{to} + 48], {d}"),
                $line,
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                $all,
                from = inout(reg) $from => _,
                to = inout(reg) $to => _,
                lines = inout(reg) $lines => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            )
        };
    }

    /// Past the caches.
    ///
    /// # Safety
    /// As [`std::ptr::copy_nonoverlapping`]; `lines` is not zero, and `to` aligned to a line.
    pub(super) unsafe fn stream(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: reads and writes what the caller promises, at the alignment that `movntdq` wants.
        // SSE2 is part of the architecture. Streaming stores are not ordered with those that will
        // tell others of them; the fence sees to that.
        unsafe { copy_lines!(from, to, lines, "movntdq", "", "sfence") };
    }

    /// Through the caches, each line at once on to the one that all cores share.
    ///
    /// # Safety
    /// As [`stream`].
    pub(super) unsafe fn demote(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: reads and writes what the caller promises, at the alignment that `movdqa` wants.
        // SSE2 is part of the architecture, and `cldemote` is a hint about a line that has been
        // written; processors without it take it for no operation.
        unsafe { copy_lines!(from, to, lines, "movdqa", "cldemote [{to}]", "") };
    }

    /// Asks the processor for `CLDEMOTE`: bit 25 of ECX in leaf 7.
    #[allow(unused_unsafe)] // Safe in newer compilers.
    pub(super) fn can_demote() -> bool {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // SAFETY: every x86-64 has CPUID, and its leaf 0, which tells of the others.
        let leaves = unsafe { __cpuid(0) }.eax;
        // SAFETY: as above.
        leaves >= 7 && unsafe { __cpuid_count(7, 0) }.ecx & (1 << 25) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, copy};

    #[test]
    fn every_byte_at_every_alignment() {
        let source: Vec<u8> = (0..700).map(|at| (at % 251) as u8).collect();
        for from in [0, 1, 15, 16, 33] {
            for to in [0, 1, 17, 48, 63] {
                for len in [0, 1, 15, 63, 64, 65, 127, 128, 500] {
                    for path in [Path::PastCaches, Path::ThroughCaches, Path::ToSharedCache] {
                        let mut target = vec![0xEE; 700];
                        let (source, into) = (&source[from..], target[to..].as_mut_ptr());
                        // SAFETY: both have `len` bytes from there on, and are different vectors.
                        unsafe { copy(path, source.as_ptr(), into, len) };
                        let mut expected = vec![0xEE; 700];
                        expected[to..to + len].copy_from_slice(&source[..len]);
                        assert_eq!(target, expected, "{path:?}");
                    }
                }
            }
        }
    }
}
