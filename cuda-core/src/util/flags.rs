//! Sets of CUDA flags: numbers whose bits have names.

use std::fmt;

/// Defines a set of flags from the header's constants, whose type differs by platform. Bits without a name
/// are kept: a newer driver may know them.
macro_rules! flags {
    (
        $(#[$about:meta])*
        $name:ident {
            $($(#[$doc:meta])* $flag:ident = $bits:expr;)*
        }
    ) => {
        $(#[$about])*
        ///
        /// `Debug` shows their names.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub(crate) u32);

        #[allow(clippy::unnecessary_cast, reason = "the header's type differs by platform")]
        impl $name {
            /// No flag: what `Default` returns.
            pub const NONE: Self = Self(0);
            $($(#[$doc])* pub const $flag: Self = Self($bits as u32);)*

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
                let named = [$((stringify!($flag), Self::$flag.0)),*];
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

/// Writes `Flags(ONE | OTHER | 0x80)`: the flags with a name, then the bits that have none.
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
    use crate::EventFlags;

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
