//! `Debug` of types that show what they answer, not what they are made of.

/// Implements `Debug` as a struct with these fields:
/// `debug! { [T: Pod] PitchedBuffer [T], |it| width: it.width, device: it.device() }`.
macro_rules! debug {
    (
        [$($generics:tt)*] $name:ident [$($arguments:tt)*],
        |$this:ident| $($field:ident: $value:expr),+ $(,)?
    ) => {
        impl<$($generics)*> std::fmt::Debug for $name<$($arguments)*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))+.finish()
            }
        }
    };
}

pub(crate) use debug;
