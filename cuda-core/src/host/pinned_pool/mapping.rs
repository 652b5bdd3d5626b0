//! Memory of the host from the system itself: large, in huge pages, and in place before it is
//! registered.

use std::num::NonZeroUsize;
use std::thread;

use super::node::Node;
use crate::host::pinned::HostAddress;

/// What mappings are multiples of, and aligned to: a huge page, so that none is cut.
pub(super) const UNIT: usize = if cfg!(miri) { 64 << 10 } else { 2 << 20 };

/// The smallest page that a system may have.
const PAGE: usize = 4096;

/// Bytes for which a thread of its own pays: it takes about as long to start as to touch 1 MiB.
const SHARE: usize = 8 << 20;

/// Beyond this many threads the kernel's own locks set the pace.
const MOST_THREADS: usize = 16;

/// Zeroed memory that nobody else has.
pub(super) struct Mapping {
    // INVARIANT: the first of `bytes` bytes that `os::map` returned, a multiple of `UNIT`.
    base: HostAddress,
    bytes: usize,
}

impl Mapping {
    /// `bytes`, a multiple of [`UNIT`], near `node`; every page is there. [`None`] where the system
    /// has no such memory.
    pub(super) fn new(bytes: usize, node: Node) -> Option<Self> {
        let base = os::map(bytes)?;
        os::advise(base, bytes, node);
        let mapping = Self { base, bytes };
        mapping.touch();
        Some(mapping)
    }

    pub(super) fn base(&self) -> HostAddress {
        self.base
    }

    /// Makes the system put a page wherever there is none. The driver would too, but on one thread.
    fn touch(&self) {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = cores.min(MOST_THREADS).min(self.bytes / SHARE).max(1);
        let share = self.bytes.div_ceil(threads).next_multiple_of(UNIT);
        thread::scope(|scope| {
            for start in (share..self.bytes).step_by(share) {
                let end = self.bytes.min(start + share);
                let started = thread::Builder::new()
                    .name("cuda-core pages".to_owned())
                    .spawn_scoped(scope, move || self.touch_range(start, end));
                if started.is_err() {
                    self.touch_range(start, end);
                }
            }
            self.touch_range(0, share.min(self.bytes));
        });
    }

    fn touch_range(&self, start: usize, end: usize) {
        for at in (start..end).step_by(PAGE) {
            // SAFETY: `at` is within the mapping.
            let page = unsafe { self.base.0.as_ptr().add(at) };
            // SAFETY: the byte is ours alone: each thread has a range of its own, and nobody else
            // knows the mapping yet.
            unsafe { page.write_volatile(0) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        os::unmap(self.base, self.bytes);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod os {
    use std::ptr::{self, NonNull};

    use super::{HostAddress, Node, UNIT};

    /// `bytes` of zeroes, aligned to [`UNIT`].
    pub(super) fn map(bytes: usize) -> Option<HostAddress> {
        // One unit more than asked for: an aligned part of this size lies somewhere in it.
        let whole = bytes.checked_add(UNIT)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, wherever the system likes, replaces none that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), whole, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast::<u8>())?;
        let before = start.addr().get().next_multiple_of(UNIT) - start.addr().get();
        // SAFETY: `before` is less than a unit, which the mapping has beyond `bytes`.
        let base = unsafe { start.add(before) };
        // SAFETY: the mapping has `bytes` and a unit; before `base` there is less than a unit, so
        // this is within it, or its end.
        let after = unsafe { base.add(bytes) };
        unmap(HostAddress(start), before);
        unmap(HostAddress(after), UNIT - before);
        Some(HostAddress(base))
    }

    /// All of it is advice: where the system takes none, the memory is slower and no less right.
    pub(super) fn advise(base: HostAddress, bytes: usize, node: Node) {
        // A child of `fork` gets none of it: else the parent would be the one to move to other
        // pages when it next writes, and leave those that the device knows to the child.
        for advice in [libc::MADV_DONTFORK, libc::MADV_HUGEPAGE] {
            // SAFETY: a mapping of ours, whose bytes neither advice changes.
            unsafe { libc::madvise(base.0.as_ptr().cast(), bytes, advice) };
        }
        let one: libc::c_ulong = 1;
        let Some(mask) = node.number().and_then(|number| one.checked_shl(number)) else {
            return;
        };
        // The kernel looks at one bit less than it is told.
        let bits = libc::c_ulong::BITS + 1;
        // SAFETY: a mapping of ours, whose bytes the call does not change; the mask has the
        // bits that are looked at. "Preferred": where that node has no memory left, another's is taken.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                base.0.as_ptr(),
                bytes,
                libc::c_long::from(libc::MPOL_PREFERRED),
                &raw const mask,
                libc::c_ulong::from(bits),
                0 as libc::c_ulong,
            )
        };
    }

    /// Ends all or a part of a mapping that nobody uses any more.
    pub(super) fn unmap(base: HostAddress, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: whole pages of a mapping of ours, which nobody uses, and no device either. It can
        // fail where the process has too many mappings; then the memory stays, unused.
        unsafe { libc::munmap(base.0.as_ptr().cast(), bytes) };
    }
}

/// Miri knows no advice, and minds the memory better this way.
#[cfg(miri)]
mod os {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::{HostAddress, Node, UNIT};

    /// It asks the system for what it is asked for, and is ended where that is too much.
    const MOST: usize = 1 << 30;

    pub(super) fn map(bytes: usize) -> Option<HostAddress> {
        let layout = layout(bytes).filter(|layout| layout.size() <= MOST)?;
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout) }).map(HostAddress)
    }

    pub(super) fn advise(_: HostAddress, _: usize, _: Node) {}

    pub(super) fn unmap(base: HostAddress, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: allocated by `map` with this layout, and freed once.
            unsafe { dealloc(base.0.as_ptr(), layout) };
        }
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, UNIT).ok()
    }
}

/// The driver allocates there.
#[cfg(not(any(target_os = "linux", miri)))]
mod os {
    use super::{HostAddress, Node};

    pub(super) fn map(_: usize) -> Option<HostAddress> {
        None
    }

    pub(super) fn advise(_: HostAddress, _: usize, _: Node) {}

    pub(super) fn unmap(_: HostAddress, _: usize) {}
}

#[cfg(all(test, any(target_os = "linux", miri)))]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_zeroed_and_apart() {
        let sizes = [UNIT, 3 * UNIT, UNIT];
        let mappings = [Node::ANY, Node::ZERO, Node::ANY];
        let mappings: Vec<_> = sizes
            .into_iter()
            .zip(mappings)
            .map(|(bytes, node)| Mapping::new(bytes, node).expect("memory"))
            .collect();
        for (value, mapping) in (1..).zip(&mappings) {
            let base = mapping.base().0.as_ptr();
            assert_eq!(base.addr() % UNIT, 0);
            for at in [0, mapping.bytes / 2, mapping.bytes - 1] {
                // SAFETY: within the mapping.
                let byte = unsafe { base.add(at) };
                // SAFETY: the mapping is initialised, and nobody else has it.
                assert_eq!(unsafe { byte.replace(value) }, 0);
            }
        }
        for (value, mapping) in (1..).zip(&mappings) {
            // SAFETY: the first byte of the mapping, which is initialised; nobody else has it.
            assert_eq!(unsafe { mapping.base().0.read() }, value);
        }
    }

    /// What the system was told of the pages: that node 0 is preferred, or nothing.
    #[test]
    #[cfg(not(miri))]
    fn mappings_are_near_their_node() {
        /// `MPOL_F_ADDR`: of an address, not of the thread.
        const OF_ADDRESS: libc::c_ulong = 1 << 1;
        let preferred = |node| {
            let mapping = Mapping::new(UNIT, node).expect("memory");
            let (mut mode, mut mask): (libc::c_int, libc::c_ulong) = (-1, 0);
            // SAFETY: the call writes an int and a mask of as many bits as it is told, to two
            // locals that outlive it; the address is within the mapping.
            let asked = unsafe {
                libc::syscall(
                    libc::SYS_get_mempolicy,
                    &raw mut mode,
                    &raw mut mask,
                    libc::c_ulong::from(libc::c_ulong::BITS),
                    mapping.base().0.as_ptr(),
                    OF_ADDRESS,
                )
            };
            (asked == 0).then_some((mode, mask))
        };
        let Some(told) = preferred(Node::ZERO) else {
            // Systems without nodes do not say, nor do containers.
            let why = std::io::Error::last_os_error().raw_os_error();
            assert!(matches!(why, Some(libc::ENOSYS | libc::EPERM)), "{why:?}");
            return;
        };
        assert_eq!(told, (libc::MPOL_PREFERRED, 1));
        assert_eq!(preferred(Node::ANY), Some((libc::MPOL_DEFAULT, 0)));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        assert!(Mapping::new(1 << 50, Node::ANY).is_none());
        assert!(Mapping::new(usize::MAX - UNIT + 1, Node::ANY).is_none());
    }
}
