//! `Debug`, `Eq` and `Hash` by the parts that a type chooses.

/// Implements `Debug` as named parts (followed by `; ..` if the type has others), as one part without a name,
/// or as a text.
///
/// ```text
/// debug_by! { [A: Debug] Hooks<A>: |it| "Hooks" { inner: it.inner; .. } }
/// debug_by! { [] Kernel: |it| "Kernel"(it.name()) }
/// debug_by! { [] Cubin: |it| "Cubin({} bytes)", it.image.len() }
/// ```
macro_rules! debug_by {
    ([$($generics:tt)*] $type:ty: |$it:ident| $name:literal {
        $($part:ident: $value:expr),* $(; $others:tt)?
    }) => {
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut parts = f.debug_struct($name);
                $(parts.field(stringify!($part), &$value);)*
                $crate::util::debug_by!(@finish parts $($others)?)
            }
        }
    };
    ([$($generics:tt)*] $type:ty: |$it:ident| $name:literal($part:expr)) => {
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_tuple($name).field(&$part).finish()
            }
        }
    };
    ([$($generics:tt)*] $type:ty: |$it:ident| $($text:tt)*) => {
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                write!(f, $($text)*)
            }
        }
    };
    (@finish $parts:ident) => { $parts.finish() };
    (@finish $parts:ident ..) => { $parts.finish_non_exhaustive() };
}

/// Implements `Eq` and `Hash` by a key.
///
/// ```text
/// compare_by! { Kernel: |it| it.as_raw() }
/// ```
macro_rules! compare_by {
    ($type:ty: |$it:ident| $key:expr) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                let key = |$it: &Self| $key;
                key(self) == key(other)
            }
        }

        impl Eq for $type {}

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                let $it = self;
                std::hash::Hash::hash(&$key, state);
            }
        }
    };
}

pub(crate) use {compare_by, debug_by};
