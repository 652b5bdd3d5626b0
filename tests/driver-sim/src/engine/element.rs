//! Numbers as kernels see them.

/// A number that a parameter or an array of a kernel can have.
pub trait Element: Copy + sealed::Bytes {}

pub(crate) mod sealed {
    /// A number as its bytes, in the order of the device.
    pub trait Bytes {
        /// From exactly as many bytes as the number has.
        fn read(bytes: &[u8]) -> Self;

        fn write(self, to: &mut Vec<u8>);
    }
}

macro_rules! elements {
    ($($number:ty)*) => {
        $(
            impl Element for $number {}

            impl sealed::Bytes for $number {
                fn read(bytes: &[u8]) -> Self {
                    Self::from_le_bytes(bytes.try_into().expect("the bytes of one number"))
                }

                fn write(self, to: &mut Vec<u8>) {
                    to.extend(self.to_le_bytes());
                }
            }
        )*
    };
}

elements!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);
