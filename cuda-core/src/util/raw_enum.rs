//! Enumerations whose variants stand for values of the driver.

/// Defines an enumeration. Each variant is given the constant of the driver API that it stands for.
macro_rules! raw_enum {
    (
        $(#[$about:meta])*
        $name:ident: $raw:ident {
            $($(#[$doc:meta])* $variant:ident = $value:ident,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        #[allow(dead_code, reason = "most are passed to the driver or returned by it, not both")]
        impl $name {
            pub(crate) fn as_raw(self) -> cuda_sys::$raw {
                match self {
                    $(Self::$variant => cuda_sys::$value,)*
                }
            }

            /// Returns [`None`] for a value without a variant.
            pub(crate) fn from_raw(raw: cuda_sys::$raw) -> Option<Self> {
                match raw {
                    $(cuda_sys::$value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use raw_enum;
