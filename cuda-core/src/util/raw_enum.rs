//! Enumerations with a value of the driver's for each variant.

/// Defines an enumeration, each variant with the constant of the driver's API that it stands for.
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

            /// [`None`] for a value without a variant.
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
