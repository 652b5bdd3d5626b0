//! Complex numbers.

use std::fmt;

use crate::types::Pod;
use crate::util::from;

macro_rules! complex {
    ($(
        $(#[$about:meta])*
        $name:ident: $part:ident, $align:literal
    )*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        #[repr(C, align($align))]
        pub struct $name {
            /// The real part.
            pub re: $part,
            /// The imaginary part.
            pub im: $part,
        }

        impl $name {
            /// The number `re` + `im` i.
            pub const fn new(re: $part, im: $part) -> Self {
                Self { re, im }
            }
        }

        /// `1-2i`.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{:+}i", self.re, self.im)
            }
        }

        // SAFETY: two numbers of the same size, and so without padding: the alignment is the size of
        // both together.
        unsafe impl Pod for $name {}

        from! {
            [] $part => $name: |it| Self::new(it, 0.0);
            [] [$part; 2] => $name: |it| Self::new(it[0], it[1]);
            [] $name => [$part; 2]: |it| [it.re, it.im];
        }
    )*};
}

complex! {
    /// A complex number of two `f32`, laid out and aligned as CUDA's `cuFloatComplex` and `float2`:
    /// to 8 bytes, where `num_complex::Complex32` is aligned to 4.
    ///
    /// For storage and for kernels: it has no arithmetic. A buffer of `[f32; 2]` or of `f32`
    /// becomes one of these by [`Slice::cast`](crate::Slice::cast).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("turn")?;
    /// use cuda_core::Complex32;
    ///
    /// let mut signal = stream.alloc::<Complex32>(1024)?;
    /// stream.fill(&mut signal, Complex32::new(1.0, -1.0))?;
    /// let launch = stream
    ///     .kernel(&function)
    ///     .elements(1024)
    ///     .arg(&mut signal)
    ///     .arg(Complex32::new(0.0, 1.0));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFloatComplex"))]
    Complex32: f32, 8

    /// A complex number of two `f64`, laid out and aligned as CUDA's `cuDoubleComplex` and
    /// `double2`: to 16 bytes, where `num_complex::Complex64` is aligned to 8.
    ///
    /// ```
    /// use cuda_core::Complex64;
    ///
    /// let i = Complex64::new(0.0, 1.0);
    /// assert_eq!(<[f64; 2]>::from(i), [0.0, 1.0]);
    /// assert_eq!(Complex64::from(2.0), Complex64 { re: 2.0, im: 0.0 });
    /// ```
    #[doc(alias("cuDoubleComplex"))]
    Complex64: f64, 16
}
