//! Types of kernels' parameters and elements.

use std::slice;

/// A value that a parameter or an array of a kernel can have: a number, an array, or a struct of the program.
/// `f16` and `bf16` are passed as `u16`, their bits.
///
/// # Safety
/// Any bytes are a value of the type, and it has no padding. `cuda_core::Pod` requires the same.
///
/// ```
/// cuda_core::pod! {
///     struct Light { direction: [f32; 3], strength: f32 }
/// }
/// // SAFETY: `pod!` proves it.
/// unsafe impl cuda_sim::Element for Light {}
///
/// cuda_sim::kernels! {
///     // __global__ void shade(Light light, float *to, unsigned n)
///     fn shade(light: Light, to: &mut [f32; n], n: u32) {
///         to.fill(light.strength);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a declared kernel cannot have `{Self}`",
    note = "a struct without padding: `unsafe impl cuda_sim::Element for {Self} {{}}`",
    note = "for anything else `cuda_sim::register_kernel` takes a kernel as two closures"
)]
pub unsafe trait Element: Copy + 'static {}

macro_rules! elements {
    ($($number:ty)*) => {
        $(
            // SAFETY: any bytes are a number of this type, and it has no padding.
            unsafe impl Element for $number {}
        )*
    };
}

elements!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64);

// SAFETY: an array consists of its elements, with nothing between or behind them, and any bytes are an
// element.
unsafe impl<T: Element, const N: usize> Element for [T; N] {}

/// A parameter that is passed by value: an [`Element`], or `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a simulated kernel",
    note = "memory has a length: `&[f32; n]` for elements that the kernel reads, `&mut [f32; n]` for those that it writes",
    note = "a struct of your own implements `cuda_sim::Element`, or its newtype in the test does"
)]
pub trait ByValue: Sized {
    /// Reads a value from exactly as many bytes as it has.
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;
}

// Makes the compiler's error name `Element`.
#[diagnostic::do_not_recommend]
impl<T: Element> ByValue for T {
    fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), size_of::<Self>(), "the bytes of one value");
        // SAFETY: the slice has as many bytes as the value, of which any are a value; they need not be
        // aligned.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }
}

impl ByValue for bool {
    fn read(bytes: &[u8]) -> Self {
        bytes.iter().any(|byte| *byte != 0)
    }
}

/// Returns the bytes of elements, in the device's byte order, which is the host's.
pub(super) fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: without padding all bytes are initialised; the result's lifetime is that of the borrow.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}
