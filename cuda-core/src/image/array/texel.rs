//! Types that an array can hold.

use cuda_sys::CUarray_format;

use crate::types::{Pod, f16};

/// An element of a [`CudaArray`](crate::image::CudaArray): one, two or four numbers of a format
/// that textures and surfaces support. Sealed.
///
/// A texel of two channels is `[f32; 2]`, a texel of four `[u8; 4]`; half floats are [`struct@f16`].
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{Context, Result, image::{ArrayFlags, ArrayShape, CudaArray, Texel}};
///
/// fn square<T: Texel>(context: &Context, width: usize) -> Result<CudaArray<T>> {
///     let shape = ArrayShape::D2 { width, height: width };
///     CudaArray::new(context, shape, ArrayFlags::default())
/// }
/// let grey = square::<u8>(&context, 64)?;
/// let colours = square::<[f32; 4]>(&context, 64)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Texel: Pod + Sealed {
    /// The format of a channel.
    const FORMAT: CUarray_format;
    /// The number of channels: 1, 2 or 4.
    const CHANNELS: u32;
}

pub(crate) trait Sealed {}

macro_rules! texels {
    ($($ty:ty = $format:ident,)*) => {$(
        texels!($ty, $format, 1);
        texels!([$ty; 2], $format, 2);
        texels!([$ty; 4], $format, 4);
    )*};
    ($ty:ty, $format:ident, $channels:literal) => {
        impl Sealed for $ty {}
        impl Texel for $ty {
            const FORMAT: CUarray_format = cuda_sys::$format;
            const CHANNELS: u32 = $channels;
        }
    };
}

texels! {
    u8 = CU_AD_FORMAT_UNSIGNED_INT8,
    u16 = CU_AD_FORMAT_UNSIGNED_INT16,
    u32 = CU_AD_FORMAT_UNSIGNED_INT32,
    i8 = CU_AD_FORMAT_SIGNED_INT8,
    i16 = CU_AD_FORMAT_SIGNED_INT16,
    i32 = CU_AD_FORMAT_SIGNED_INT32,
    f16 = CU_AD_FORMAT_HALF,
    f32 = CU_AD_FORMAT_FLOAT,
}
