//! Names by which other processes open memory and events.

/// Defines a name of 64 bytes, which the driver writes and reads as the type `$raw`.
macro_rules! sent_bytes {
    ($(#[$about:meta])* $name:ident: $raw:ty) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 64]);

        const _: () = assert!(size_of::<$raw>() == 64 && align_of::<$raw>() == 1);

        impl $name {
            /// Makes the name from bytes that `to_bytes` returned, usually in another process.
            pub const fn from_bytes(bytes: [u8; 64]) -> Self {
                Self(bytes)
            }

            /// The bytes to send.
            pub const fn to_bytes(self) -> [u8; 64] {
                self.0
            }
        }

        $crate::util::debug_by! {
            [] $name: |_it| concat!(stringify!($name), "(..)")
        }
    };
}

pub(crate) use sent_bytes;
