//! Types that are nothing but their bytes.

/// A type whose values are plain bytes: whatever a device wrote is a valid value.
///
/// Implemented for integers, floats and arrays of such types. Rust's orphan rule keeps you from
/// implementing it for types of other crates, such as `half::f16` or `num_complex::Complex<f32>`. Pass
/// those as their bits (`&[f16]` as `&[u16]`), or wrap them: `#[repr(transparent)] struct Half(f16)`.
/// Neither `bool`, `char`, references nor `NonZero` qualify, since not every bit pattern is a value
/// of theirs:
///
/// ```compile_fail,E0277
/// let stream = cuda_core::Device::get(0).unwrap().create_stream().unwrap();
/// let flags = stream.alloc::<bool>(8).unwrap();
/// ```
///
/// # Safety
/// Every bit pattern of the type's size is a valid value; it has no padding, no interior
/// mutability and no pointers.
///
/// ```
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     mass: f32,
/// }
///
/// // SAFETY: four `f32` and nothing else: 16 bytes without padding, any of which may have any
/// // value.
/// unsafe impl cuda_core::Pod for Particle {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be filled from a device",
    note = "`Pod` holds for types of which every bit pattern is a value and that have no padding"
)]
pub unsafe trait Pod: Copy + Send + Sync + 'static {}

macro_rules! pod {
    ($($ty:ty)*) => {$(
        // SAFETY: a primitive number: any bit pattern is a value, there is no padding.
        unsafe impl Pod for $ty {}
    )*};
}

pod!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array is its elements one after the other, without padding between or behind them.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// The bytes of a slice.
pub(crate) fn bytes_of<T: Pod>(slice: &[T]) -> &[u8] {
    // SAFETY: `Pod` has no padding, so all `size_of_val` bytes are initialised; `u8` has no
    // alignment to keep; the lifetime is that of the borrow.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// The bytes of a slice, to be written.
pub(crate) fn bytes_of_mut<T: Pod>(slice: &mut [T]) -> &mut [u8] {
    // SAFETY: `Pod` has no padding, so all `size_of_val` bytes are initialised, and any that are
    // written make valid values; `u8` has no alignment to keep; the lifetime is that of the
    // exclusive borrow.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}
