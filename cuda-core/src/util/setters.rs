//! Methods that change one field of a value.

/// Implements them: `setters! { with_name(name: &str) => name = name.into(); }`, each with its documentation.
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
