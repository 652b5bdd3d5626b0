//! The DLPack data types of elements.

use super::raw::DLDataType;
use crate::types::{Complex32, Complex64, Pod, bf16, f16};

/// A number type that tensors of other libraries can have: integers of up to 64 bits, [`struct@f16`],
/// [`struct@bf16`], `f32`, `f64`, [`Complex32`] and [`Complex64`]. Sealed.
///
/// ```
/// use cuda_core::{Complex32, dlpack::TensorElement};
///
/// assert_eq!(Complex32::DATA_TYPE.to_string(), "complex64"); // bits of both parts
/// assert_eq!(Complex32::TYPESTR, Some("<c8")); // bytes
/// ```
pub trait TensorElement: Pod + sealed::Sealed {
    /// The type in DLPack.
    const DATA_TYPE: DLDataType;
    /// The type in NumPy and `__cuda_array_interface__`, which have no `bf16`.
    const TYPESTR: Option<&'static str>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty: $code:ident $name:expr;)*) => {$(
        impl sealed::Sealed for $ty {}

        impl TensorElement for $ty {
            const DATA_TYPE: DLDataType =
                DLDataType { code: DLDataType::$code, bits: 8 * size_of::<Self>() as u8, lanes: 1 };
            const TYPESTR: Option<&'static str> = $name;
        }
    )*};
}

// CUDA runs on little-endian machines only.
elements! {
    i8: INT Some("|i1");
    i16: INT Some("<i2");
    i32: INT Some("<i4");
    i64: INT Some("<i8");
    u8: UINT Some("|u1");
    u16: UINT Some("<u2");
    u32: UINT Some("<u4");
    u64: UINT Some("<u8");
    f16: FLOAT Some("<f2");
    bf16: BFLOAT None;
    f32: FLOAT Some("<f4");
    f64: FLOAT Some("<f8");
    Complex32: COMPLEX Some("<c8");
    Complex64: COMPLEX Some("<c16");
}
