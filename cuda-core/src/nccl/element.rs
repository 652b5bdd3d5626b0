//! The element types that NCCL knows.

use std::ffi::c_int;

use super::raw;
use crate::types::{Pod, bf16, f16};

/// An element that NCCL can reduce: the integers and floating-point numbers that it has a type for.
/// Sealed.
///
/// ```
/// fn reducible<T: cuda_core::nccl::Element>() {}
/// reducible::<cuda_core::bf16>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element that NCCL can reduce",
    note = "NCCL knows i8, u8, i32, u32, i64, u64, f16, bf16, f32 and f64; cast other views to these"
)]
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Element: Pod + Typed {}

pub(super) trait Typed {
    /// The element's `ncclDataType_t`.
    const TYPE: c_int;
}

macro_rules! elements {
    ($($ty:ty = $number:ident,)*) => {$(
        impl Element for $ty {}

        impl Typed for $ty {
            const TYPE: c_int = raw::$number;
        }
    )*};
}

elements! {
    i8 = INT8,
    u8 = UINT8,
    i32 = INT32,
    u32 = UINT32,
    i64 = INT64,
    u64 = UINT64,
    f16 = FLOAT16,
    bf16 = BFLOAT16,
    f32 = FLOAT32,
    f64 = FLOAT64,
}
