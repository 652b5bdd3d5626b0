//! Conversions that are one expression each.

/// Implements `From`: `from! { ['a, T: Pod] &'a Buffer<T> => Slice<'a, T>: |it| it.as_view(); }`.
macro_rules! from {
    ($([$($generics:tt)*] $from:ty => $to:ty: |$value:ident| $made:expr;)*) => {$(
        impl<$($generics)*> From<$from> for $to {
            #[inline]
            fn from($value: $from) -> Self {
                $made
            }
        }
    )*};
}

pub(crate) use from;
