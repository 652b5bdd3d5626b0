//! Copying of cache lines, with instructions for which Rust has no portable intrinsics.

use super::copying::Path;

/// The size of a line in bytes.
pub(super) const LINE: usize = 64;

/// Copies `lines` cache lines, at least one, as [`std::ptr::copy_nonoverlapping`] would copy their
/// bytes; `to` is aligned to a line.
pub(super) type CopyLines = unsafe fn(from: *const u8, to: *mut u8, lines: usize);

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use self::x86_64::{by, can_demote};

/// Other processors use the plain copy.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn by(_: Path) -> Option<CopyLines> {
    None
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) fn can_demote() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::{CopyLines, Path};

    /// Returns the function that copies lines on the path; [`None`] if the plain copy does.
    pub(in super::super) fn by(path: Path) -> Option<CopyLines> {
        match path {
            Path::PastCaches => Some(stream),
            Path::ThroughCaches => None,
            Path::ToSharedCache => Some(demote),
        }
    }

    /// Whether the processor has `CLDEMOTE`: bit 25 of ECX in leaf 7.
    #[allow(unused_unsafe)] // Safe in newer versions of the standard library.
    pub(in super::super) fn can_demote() -> bool {
        // SAFETY: every x86-64 has CPUID, and its leaf 0, which returns the highest leaf.
        let leaves = unsafe { __cpuid(0) }.eax;
        // SAFETY: the leaf exists.
        leaves >= 7 && unsafe { __cpuid_count(7, 0) }.ecx & (1 << 25) != 0
    }

    /// Copies lines: `$store` stores sixteen bytes, `$line` follows each line, `$all` follows the last.
    /// In assembly, since an unoptimised build would call a function for each intrinsic.
    macro_rules! copy_lines {
        ($from:ident, $to:ident, $lines:ident, $store:literal, $line:literal, $all:literal) => {
            asm!(
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

    /// Copies past the caches, since reading the lines before overwriting them would take a third of
    /// the memory's bandwidth.
    ///
    /// # Safety
    /// As for [`CopyLines`].
    unsafe fn stream(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: reads and writes what the caller promises, at the alignment that `movntdq` needs.
        // SSE2 is part of the architecture. Streaming stores are not ordered with the later stores by
        // which other threads learn of them; the fence orders them.
        unsafe { copy_lines!(from, to, lines, "movntdq", "", "sfence") };
    }

    /// Copies through the caches, and sends each line at once to the cache that all cores share.
    ///
    /// # Safety
    /// As for [`CopyLines`].
    unsafe fn demote(from: *const u8, to: *mut u8, lines: usize) {
        // SAFETY: reads and writes what the caller promises, at the alignment that `movdqa` needs.
        // SSE2 is part of the architecture, and `cldemote` is a hint about a line that has just
        // been written; processors without it execute it as a no-op.
        unsafe { copy_lines!(from, to, lines, "movdqa", "cldemote [{to}]", "") };
    }
}
