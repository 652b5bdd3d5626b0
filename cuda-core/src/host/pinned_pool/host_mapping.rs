//! Host memory from the operating system: large mappings in huge pages, populated before they are
//! registered.

use std::num::NonZeroUsize;
use std::thread;

use super::node::NumaNode;
use crate::host::HostAddress;

/// The unit of mappings' sizes and alignment: a huge page, so that no huge page is split.
pub(super) const UNIT: usize = if cfg!(miri) { 64 << 10 } else { 2 << 20 };

/// The smallest page that a system may have.
const PAGE: usize = 4096;

/// The bytes that justify another thread: starting one takes about as long as touching 1 MiB.
const SHARE: usize = 8 << 20;

/// The number of threads beyond which the kernel's own locks limit the speed.
const MOST_THREADS: usize = 16;

/// A zeroed mapping, exclusively owned.
pub(super) struct HostMapping {
    // INVARIANT: the first of `bytes` bytes that `os::map` returned; `bytes` is a multiple of `UNIT`.
    pub(super) base: HostAddress,
    bytes: usize,
}

impl HostMapping {
    /// Creates a mapping of `bytes`, a multiple of [`UNIT`], near `node`, with every page populated.
    /// [`None`] if the system has no such memory.
    pub(super) fn new(bytes: usize, node: NumaNode) -> Option<Self> {
        let base = os::map(bytes)?;
        os::advise(base, bytes, node);
        let mapping = Self { base, bytes };
        mapping.touch();
        Some(mapping)
    }

    /// Touches every page, so that the system populates it. `cuMemHostRegister` would do so too, but on
    /// one thread.
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
            // SAFETY: no other code accesses the byte: each thread has its own range, and the mapping
            // has not been handed out yet.
            unsafe { page.write_volatile(0) };
        }
    }
}

impl Drop for HostMapping {
    fn drop(&mut self) {
        os::unmap(self.base, self.bytes);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod os {
    use std::ptr::{self, NonNull};

    use super::{HostAddress, NumaNode, UNIT};

    /// Maps `bytes` zeroed bytes, aligned to [`UNIT`].
    pub(super) fn map(bytes: usize) -> Option<HostAddress> {
        // One unit more than needed, so that it contains an aligned part of size `bytes`.
        let whole = bytes.checked_add(UNIT)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address that the system chooses replaces no existing one.
        let start = unsafe { libc::mmap(ptr::null_mut(), whole, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast::<u8>())?;
        let before = start.addr().get().next_multiple_of(UNIT) - start.addr().get();
        // SAFETY: `before` is less than a unit, and the mapping is one unit larger than `bytes`.
        let base = unsafe { start.add(before) };
        // SAFETY: the mapping has `bytes` and a unit; there is less than a unit before `base`, so this
        // is within the mapping, or its end.
        let after = unsafe { base.add(bytes) };
        unmap(HostAddress(start), before);
        unmap(HostAddress(after), UNIT - before);
        Some(HostAddress(base))
    }

    /// Advises the system about the mapping. If it rejects the advice, the memory is slower but still
    /// correct.
    pub(super) fn advise(base: HostAddress, bytes: usize, node: NumaNode) {
        // A `fork` child does not inherit the mapping. Otherwise the parent's next write would give the
        // parent copies of the pages, and leave the pages that the device has pinned to the child.
        for advice in [libc::MADV_DONTFORK, libc::MADV_HUGEPAGE] {
            // SAFETY: this crate owns the mapping, and neither advice changes its bytes.
            unsafe { libc::madvise(base.0.as_ptr().cast(), bytes, advice) };
        }
        let one: libc::c_ulong = 1;
        let Some(mask) = node.number().and_then(|number| one.checked_shl(number)) else { return };
        // The kernel reads one bit less than the number that it is passed.
        let bits = libc::c_ulong::BITS + 1;
        // SAFETY: this crate owns the mapping, and the call does not change its bytes; the mask has as
        // many bits as the kernel reads. "Preferred": if that node has no memory left, the kernel uses
        // another node's.
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

    /// Unmaps all or part of a mapping that is not used any more.
    pub(super) fn unmap(base: HostAddress, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: whole pages of a mapping that this crate owns, which neither the host nor a device
        // uses. The call can fail if the process has too many mappings; the memory then stays, unused.
        unsafe { libc::munmap(base.0.as_ptr().cast(), bytes) };
    }
}

/// Miri has no `madvise`, and checks memory from the allocator more strictly.
#[cfg(miri)]
mod os {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::{HostAddress, NumaNode, UNIT};

    /// The largest mapping: Miri allocates whatever is requested, and is killed if that is too much.
    const MOST: usize = 1 << 30;

    pub(super) fn map(bytes: usize) -> Option<HostAddress> {
        let layout = layout(bytes).filter(|layout| layout.size() <= MOST)?;
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout) }).map(HostAddress)
    }

    pub(super) fn advise(_: HostAddress, _: usize, _: NumaNode) {}

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

/// On other systems the driver allocates the memory.
#[cfg(not(any(target_os = "linux", miri)))]
mod os {
    use super::{HostAddress, NumaNode};

    pub(super) fn map(_: usize) -> Option<HostAddress> {
        None
    }

    pub(super) fn advise(_: HostAddress, _: usize, _: NumaNode) {}

    pub(super) fn unmap(_: HostAddress, _: usize) {}
}

#[cfg(any(target_os = "linux", miri))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_zeroed_and_apart() {
        let sizes = [UNIT, 3 * UNIT, UNIT];
        let mappings = [NumaNode::ANY, NumaNode::ZERO, NumaNode::ANY];
        let mappings: Vec<_> = sizes
            .into_iter()
            .zip(mappings)
            .map(|(bytes, node)| HostMapping::new(bytes, node).expect("memory"))
            .collect();
        for (value, mapping) in (1..).zip(&mappings) {
            let base = mapping.base.0.as_ptr();
            assert_eq!(base.addr() % UNIT, 0);
            for at in [0, mapping.bytes / 2, mapping.bytes - 1] {
                // SAFETY: within the mapping.
                let byte = unsafe { base.add(at) };
                // SAFETY: the mapping is initialised, and only this test uses it.
                assert_eq!(unsafe { byte.replace(value) }, 0);
            }
        }
        for (value, mapping) in (1..).zip(&mappings) {
            // SAFETY: the first byte of the mapping, which is initialised; only this test uses it.
            assert_eq!(unsafe { mapping.base.0.read() }, value);
        }
    }

    /// Checks the memory policy that the system reports for the pages: node 0 preferred, or none.
    #[test]
    #[cfg(not(miri))]
    fn mappings_are_near_their_node() {
        /// `MPOL_F_ADDR`: the policy of an address, not of the thread.
        const OF_ADDRESS: libc::c_ulong = 1 << 1;
        let preferred = |node| {
            let mapping = HostMapping::new(UNIT, node).expect("memory");
            let (mut mode, mut mask): (libc::c_int, libc::c_ulong) = (-1, 0);
            // SAFETY: the call writes an int and a mask of as many bits as it is passed, to two locals
            // that outlive it; the address is within the mapping.
            let asked = unsafe {
                libc::syscall(
                    libc::SYS_get_mempolicy,
                    &raw mut mode,
                    &raw mut mask,
                    libc::c_ulong::from(libc::c_ulong::BITS),
                    mapping.base.0.as_ptr(),
                    OF_ADDRESS,
                )
            };
            (asked == 0).then_some((mode, mask))
        };
        let Some(preference) = preferred(NumaNode::ZERO) else {
            // Systems without NUMA nodes do not report the policy, nor do containers.
            let why = std::io::Error::last_os_error().raw_os_error();
            assert!(matches!(why, Some(libc::ENOSYS | libc::EPERM)), "{why:?}");
            return;
        };
        assert_eq!(preference, (libc::MPOL_PREFERRED, 1));
        assert_eq!(preferred(NumaNode::ANY), Some((libc::MPOL_DEFAULT, 0)));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        assert!(HostMapping::new(1 << 50, NumaNode::ANY).is_none());
        assert!(HostMapping::new(usize::MAX - UNIT + 1, NumaNode::ANY).is_none());
    }
}
