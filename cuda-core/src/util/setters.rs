//! Methods that change one field of a value.

/// Implements setters, each with its documentation:
/// `setters! { with_name(name: &str) => name = name.into(); }`.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($($field:ident: $type:ty),*) => $target:ident = $value:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $($field: $type),*) -> Self {
            self.$target = $value;
            self
        }
    )*};
}

pub(crate) use setters;
