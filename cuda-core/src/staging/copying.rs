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

/// Copies `len` bytes that neither side is about to look at again on this core: past the caches,
/// where the processor can, since reading what is to be overwritten would take a third of the
/// memory's bandwidth. They are there, for other threads and for devices, when this returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(len);
    let body = (len - head) / LINE * LINE;
    // SAFETY: the first `head` bytes of both sides.
    unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
    if body > 0 {
        // SAFETY: whole lines, one at least, within the `len` bytes of both sides.
        unsafe { stream_lines(from.wrapping_add(head), to.wrapping_add(head), body / LINE) };
    }
    let done = head + body;
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the rest of both sides.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len - done) };
}

/// Copies lines of 64 bytes. Written out, since a build without optimisation would make a call of
/// each instruction.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; `lines` is not zero, and `to` aligned to a line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: reads and writes what the caller promises, at the alignment that `movntdq` wants.
    // SSE2 is part of the architecture. Streaming stores are not ordered with those that will tell
    // others of them; the fence sees to that.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "sfence",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// As above; other processors decide by themselves.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { through_caches(from, to, len) };
}

/// Copies `len` bytes that somebody is about to look at again.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn through_caches(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `from` and `to` are good for `len` bytes and do not overlap, by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::stream;

    #[test]
    fn every_byte_at_every_alignment() {
        let source: Vec<u8> = (0..700).map(|at| (at % 251) as u8).collect();
        for from in [0, 1, 15, 16, 33] {
            for to in [0, 1, 17, 48, 63] {
                for len in [0, 1, 15, 63, 64, 65, 127, 128, 500] {
                    let mut target = vec![0xEE; 700];
                    let source = &source[from..];
                    // SAFETY: both have `len` bytes from there on, and are different vectors.
                    unsafe { stream(source.as_ptr(), target.as_mut_ptr().wrapping_add(to), len) };
                    let mut expected = vec![0xEE; 700];
                    expected[to..to + len].copy_from_slice(&source[..len]);
                    assert_eq!(target, expected);
                }
            }
        }
    }
}
