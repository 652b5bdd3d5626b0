//! Sets of flags as CUDA has them: numbers whose bits have names.

use std::fmt;

/// Defines a set of flags. Bits without a name are kept: a newer driver may know them.
macro_rules! flags {
    (
        $(#[$about:meta])*
        $name:ident {
            $($(#[$doc:meta])* $flag:ident = $bits:literal;)*
        }
    ) => {
        $(#[$about])*
        ///
        /// `Debug` shows their names.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// No flag: what `Default` returns.
            pub const NONE: Self = Self(0);
            $($(#[$doc])* pub const $flag: Self = Self($bits);)*

            /// The flags with these bits, whether or not they have a name here.
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The flags as the driver has them.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether all of `other` are among these.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let named = [$((stringify!($flag), $bits)),*];
                $crate::util::flags::show(f, stringify!($name), self.0, &named)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = *self | other;
            }
        }
    };
}

pub(crate) use flags;

/// `Flags(ONE | OTHER | 0x80)`: those with a name, then the bits that have none.
pub(crate) fn show(
    f: &mut fmt::Formatter<'_>,
    set: &str,
    mut bits: u32,
    named: &[(&str, u32)],
) -> fmt::Result {
    write!(f, "{set}(")?;
    let mut separator = "";
    for (name, _) in named.iter().filter(|(_, flag)| *flag != 0 && bits & flag == *flag) {
        write!(f, "{separator}{name}")?;
        separator = " | ";
    }
    for (_, flag) in named {
        bits &= !flag;
    }
    match (bits, separator) {
        (0, "") => f.write_str("NONE)"),
        (0, _) => f.write_str(")"),
        (bits, _) => write!(f, "{separator}{bits:#x})"),
    }
}

#[cfg(test)]
mod tests {
    use cuda_sys as cu;

    use crate::image::ArrayFlags;
    use crate::pinned::{PinnedFlags, RegisterFlags};
    use crate::{ContextFlags, EventFlags};

    /// Compares flags of a set with the header's; the type of an enumeration differs by platform.
    macro_rules! same {
        ($set:ident: $($flag:ident $header:expr,)*) => {$(
            assert_eq!($set::$flag.bits(), $header as _, stringify!($flag));
        )*};
    }

    #[test]
    fn bits_are_those_of_the_header() {
        same! { ContextFlags:
            SCHED_AUTO cu::CU_CTX_SCHED_AUTO.0,
            SCHED_SPIN cu::CU_CTX_SCHED_SPIN.0,
            SCHED_YIELD cu::CU_CTX_SCHED_YIELD.0,
            SCHED_BLOCKING_SYNC cu::CU_CTX_SCHED_BLOCKING_SYNC.0,
            MAP_HOST cu::CU_CTX_MAP_HOST.0,
            LMEM_RESIZE_TO_MAX cu::CU_CTX_LMEM_RESIZE_TO_MAX.0,
            COREDUMP_ENABLE cu::CU_CTX_COREDUMP_ENABLE.0,
            USER_COREDUMP_ENABLE cu::CU_CTX_USER_COREDUMP_ENABLE.0,
            SYNC_MEMOPS cu::CU_CTX_SYNC_MEMOPS.0,
        }
        same! { EventFlags:
            DEFAULT cu::CU_EVENT_DEFAULT.0,
            BLOCKING_SYNC cu::CU_EVENT_BLOCKING_SYNC.0,
            DISABLE_TIMING cu::CU_EVENT_DISABLE_TIMING.0,
            INTERPROCESS cu::CU_EVENT_INTERPROCESS.0,
        }
        same! { ArrayFlags:
            LAYERED cu::CUDA_ARRAY3D_LAYERED,
            SURFACE_LOAD_STORE cu::CUDA_ARRAY3D_SURFACE_LDST,
            CUBEMAP cu::CUDA_ARRAY3D_CUBEMAP,
            TEXTURE_GATHER cu::CUDA_ARRAY3D_TEXTURE_GATHER,
        }
        same! { PinnedFlags:
            PORTABLE cu::CU_MEMHOSTALLOC_PORTABLE,
            MAPPED cu::CU_MEMHOSTALLOC_DEVICEMAP,
            WRITE_COMBINED cu::CU_MEMHOSTALLOC_WRITECOMBINED,
        }
        same! { RegisterFlags:
            PORTABLE cu::CU_MEMHOSTREGISTER_PORTABLE,
            MAPPED cu::CU_MEMHOSTREGISTER_DEVICEMAP,
            READ_ONLY cu::CU_MEMHOSTREGISTER_READ_ONLY,
        }
    }

    #[test]
    fn sets_are_sets() {
        let mut flags = EventFlags::DISABLE_TIMING;
        flags |= EventFlags::BLOCKING_SYNC;
        assert_eq!(flags, EventFlags::from_bits(3));
        assert!(flags.contains(EventFlags::NONE));
        assert!(!flags.contains(EventFlags::DISABLE_TIMING | EventFlags::INTERPROCESS));
        assert_eq!(EventFlags::default(), EventFlags::DEFAULT);
    }

    #[test]
    fn debug_shows_names() {
        let shown = |bits| format!("{:?}", EventFlags::from_bits(bits));
        assert_eq!(shown(0), "EventFlags(NONE)");
        assert_eq!(shown(2), "EventFlags(DISABLE_TIMING)");
        assert_eq!(shown(0x85), "EventFlags(BLOCKING_SYNC | INTERPROCESS | 0x80)");
        assert_eq!(shown(0x80), "EventFlags(0x80)");
    }
}
