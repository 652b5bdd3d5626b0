//! Kernels with typed parameters, declared by [`kernel!`](crate::kernel!), and the traits of their
//! arguments.

use super::Function;
use super::launch::argument::Reach;
use super::tensor_map::TensorMap;
use crate::error::{Error, LaunchError, Result};
use crate::memory::{Slice, SliceMut};
use crate::types::Pod;

/// Memory for a parameter that is declared as `&[T]`: `&buffer`, shared views, `&` of a
/// [`SharedSlice`](crate::SharedSlice) or of an exclusive view. Sealed.
///
/// ```
/// use cuda_core::{Argument, DeviceBuffer, kernel};
///
/// fn is_read<'a>(_: impl Argument<'a, As: kernel::Reads<f32>>) {}
/// let _ = |buffer: &DeviceBuffer<f32>| is_read(buffer);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given for a parameter `&[{T}]`",
    note = "give `&buffer` or a shared view, of elements of this type",
    note = "host memory is copied to the device first: `stream.upload_new(&vec)`"
)]
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Reads<T>: Sealed {}

/// Memory for a parameter that is declared as `&mut [T]`: `&mut buffer` and exclusive views.
/// Sealed.
///
/// ```
/// use cuda_core::{Argument, DeviceSliceMut, kernel};
///
/// fn is_written<'a>(_: impl Argument<'a, As: kernel::Writes<f32>>) {}
/// let _ = |view: DeviceSliceMut<'_, f32>| is_written(view);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given for a parameter `&mut [{T}]`",
    note = "give `&mut buffer` or an exclusive view, of elements of this type"
)]
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Writes<T>: Sealed {}

/// A value for a parameter that is declared as the value's type: a [`Pod`] or `bool`.
/// [`kernel!`](crate::kernel!) takes its size. Other parameter types have patterns of their own in
/// the macro.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a kernel",
    note = "write `&[f32]` for memory that the kernel reads, `&mut [f32]` for memory that it may write",
    note = "declare a struct of your own by `cuda_core::pod! {{ struct P {{ .. }} }}`"
)]
pub trait ByValue: Sized {
    #[doc(hidden)]
    const SIZE: usize = size_of::<Self>();
}

// Makes the error name a parameter, not `Pod`.
#[diagnostic::do_not_recommend]
impl<T: Pod> ByValue for T {}

impl ByValue for bool {}

/// A tensor map for a parameter that is declared as `TensorMap`. Sealed.
#[doc(hidden)]
#[diagnostic::on_unimplemented(message = "`{Self}` cannot be given for a parameter `TensorMap`")]
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait MapsTensor: Sealed {}

impl<V> Sealed for TensorMap<V> {}
impl<V> MapsTensor for TensorMap<V> {}
impl<V> Sealed for &TensorMap<V> {}
impl<V> MapsTensor for &TensorMap<V> {}
impl<V> Sealed for &mut TensorMap<V> {}
impl<V> MapsTensor for &mut TensorMap<V> {}

/// Implemented here for views, and beside their use as arguments for types that give a view.
pub(super) trait Sealed {}

impl<T: Pod, M: Reach> Sealed for Slice<'_, T, M> {}
impl<T: Pod, M: Reach> Reads<T> for Slice<'_, T, M> {}

impl<T: Pod, M: Reach> Sealed for SliceMut<'_, T, M> {}
impl<T: Pod, M: Reach> Writes<T> for SliceMut<'_, T, M> {}

/// Runs [`Function::check_parameters`], and adds the parameter's name to its error.
#[doc(hidden)]
pub fn check(function: &Function, parameters: &[(&'static str, usize)]) -> Result<()> {
    let sizes: Vec<usize> = parameters.iter().map(|(_, size)| *size).collect();
    function.check_parameters(&sizes).map_err(|mut error| {
        if let Error::Launch(it) = &mut error {
            if let LaunchError::ArgumentSize { index, name, .. } = &mut **it {
                *name = parameters.get(*index).map(|(name, _)| *name);
            }
        }
        error
    })
}

/// Declares kernels once, each as a type whose launches the compiler checks.
///
/// ```no_run
/// use cuda_core::{Device, Module, kernel};
///
/// kernel! {
///     /// `y[i] += a * x[i]`, as `void saxpy(float a, const float *x, float *y, unsigned n)`.
///     pub fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
/// }
///
/// # let ptx = String::new();
/// let stream = Device::get(0)?.create_stream()?;
/// let module = Module::from_ptx(stream.context(), &ptx)?;
/// let saxpy = saxpy::load(&module)?; // compares the parameters with the compiled kernel's
/// let x = stream.upload_new(&[1.0; 1000])?;
/// let mut y = stream.alloc_zeroed(1000)?;
/// let mut launch = saxpy.on(&stream, 2.0, &x, &mut y, 1000).elements(1000);
/// // SAFETY: threads beyond `n` return, and both buffers have `n` elements.
/// unsafe { launch.launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// | parameter | argument |
/// |---|---|
/// | `&[T]` | memory that the kernel reads: `&buffer`, a shared view, a type that is [passed as](crate::Argument) one |
/// | `&mut [T]` | memory that it may write: `&mut buffer`, an exclusive view |
/// | `Option<&[T]>`, `Option<&mut [T]>` | the same for a pointer that may be null: `Some` view of device memory, or `None`; `bias.as_ref().map(DeviceBuffer::as_view)` of an `Option<DeviceBuffer<T>>` |
/// | `BoundTexture`, `BoundSurface` | a texture or a surface that is bound |
/// | `&Condition` | a [condition](crate::Condition) of a graph, which the kernel sets |
/// | `TensorMap` | a [tensor map](crate::tensor_map::TensorMap), or a reference to one |
/// | any other type | a value of it: a number, `bool`, a struct of [`pod!`](crate::pod!) |
///
/// The generated type has the visibility of the declaration, is `Clone` and `Debug`, and has
/// * `load(&Module) -> Result<Self>`, which looks the kernel up by its name, or by another one:
///   `fn scale(x: &mut [f32]) = "_Z5scalePf";`
/// * `from_function(Function) -> Result<Self>`, for a kernel of a [`Library`](crate::Library), or
///   one whose name is known only at run time, such as a template's instance
///   ([`lowered_name`](crate::nvrtc::Ptx::lowered_name)),
/// * `function(&self) -> &Function`,
/// * `on(&self, &Stream, …) -> Launch`, with an argument for each parameter. It returns a
///   [`Launch`](crate::Launch), to which grid, block and the rest are added.
///
/// `load` and `from_function` fail as
/// [`Function::check_parameters`](crate::Function::check_parameters) does. They make the driver
/// calls of [`Module::function`](crate::Module::function), and the queries that the first launch of
/// a function would make.
///
/// Launching is still `unsafe`: the declaration says nothing about the kernel's body. The kernel
/// may access elements beyond the end of its arguments, or have parameters of other types with the
/// same sizes.
///
/// Textures, and a struct of your own:
///
/// ```no_run
/// use cuda_core::{DeviceBuffer, Result, Stream, image::{CudaArray, Texture}, kernel, pod};
///
/// pod! {
///     struct Light { direction: [f32; 3], strength: f32 }
/// }
/// kernel! {
///     fn shade(image: BoundTexture, light: Light, to: &mut [f32]);
/// }
///
/// fn prepare(
///     (stream, shade): (&Stream, &shade),
///     (texture, array): (&Texture<f32>, &CudaArray<f32>),
///     to: &mut DeviceBuffer<f32>,
/// ) -> Result<()> {
///     let light = Light { direction: [0.0, 1.0, 0.0], strength: 2.0 };
///     let n = to.len();
///     let mut launch = shade.on(stream, texture.bind(array)?, light, to).elements(n);
///     // SAFETY: `to` has an element for each texel of the image.
///     unsafe { launch.launch() }
/// }
/// ```
///
/// Two parameters cannot have the same buffer if one of them is written, as in `y = a * y + y`. If
/// the kernel allows that, declare it a second time, with the address that is read as a number:
///
/// ```no_run
/// use cuda_core::{DeviceBuffer, Result, Stream, kernel};
///
/// kernel! {
///     fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
///     fn saxpy_in_place(a: f32, x: u64, y: &mut [f32], n: u32) = "saxpy";
/// }
///
/// fn triple(stream: &Stream, saxpy: &saxpy_in_place, y: &mut DeviceBuffer<f32>) -> Result<()> {
///     let (x, n) = (y.as_raw(), y.len());
///     let mut launch = saxpy.on(stream, 2.0, x, y, n as u32).elements(n);
///     // SAFETY: `x` is the memory of `y`, and each thread reads no element but the one it writes.
///     unsafe { launch.launch() }
/// }
/// ```
///
/// An argument of another type does not compile:
///
/// ```compile_fail,E0277
/// cuda_core::kernel! { fn scale(x: &mut [f32], by: f32); }
///
/// fn halve(stream: &cuda_core::Stream, scale: scale, mut x: cuda_core::DeviceBuffer<f64>) {
///     let _ = scale.on(stream, &mut x, 0.5);
/// }
/// ```
#[macro_export]
macro_rules! kernel {
    ($(
        $(#[$attribute:meta])*
        $vis:vis fn $name:ident($($parameters:tt)*) $(= $symbol:literal)?;
    )+) => {$(
        $crate::__kernel_type! {
            [$(#[$attribute])* {$vis} $name $crate::__kernel_type!(@symbol $name $($symbol)?)]
            [] [$($parameters)*]
        }
    )+};
    ($($other:tt)*) => {
        ::core::compile_error!(
            "kernels are declared as `fn name(a: f32, x: &[f32], y: &mut [f32]);`, perhaps with a \
             visibility and a symbol, and without generics, `unsafe` or a result"
        );
    };
}

/// The type of one kernel of [`kernel!`](crate::kernel!).
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_type {
    (@symbol $name:ident) => { ::core::stringify!($name) };
    (@symbol $name:ident $symbol:literal) => { $symbol };
    // Moves one parameter from the last brackets to those before, with its type and size.
    ($head:tt [$($done:tt)*] [$arg:ident: &mut [$t:ty] $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg impl $crate::Argument<'launch, As: $crate::kernel::Writes<$t>>, 8 }]
            [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: &[$t:ty] $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg impl $crate::Argument<'launch, As: $crate::kernel::Reads<$t>>, 8 }]
            [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: Option<&[$t:ty]> $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg ::core::option::Option<$crate::DeviceSlice<'launch, $t>>, 8 }]
            [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: Option<&mut [$t:ty]> $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg ::core::option::Option<$crate::DeviceSliceMut<'launch, $t>>, 8 }]
            [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: BoundTexture $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg $crate::image::BoundTexture<'launch>, 8 }] [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: BoundSurface $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg $crate::image::BoundSurface<'launch>, 8 }] [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: &Condition $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg &'launch $crate::Condition, 8 }] [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: TensorMap $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg impl $crate::Argument<'launch, As: $crate::kernel::MapsTensor>, 128 }]
            [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$arg:ident: $t:ty $(, $($rest:tt)*)?]) => {
        $crate::__kernel_type! { $head
            [$($done)* { $arg $t, <$t as $crate::kernel::ByValue>::SIZE }] [$($($rest)*)?]
        }
    };
    ($head:tt [$($done:tt)*] [$($rest:tt)+]) => {
        ::core::compile_error!(::core::concat!(
            "a parameter is declared as `name: type`, not as in `", ::core::stringify!($($rest)+), "`"
        ));
    };
    (
        [$(#[$attribute:meta])* {$vis:vis} $name:ident $symbol:expr]
        [$({ $arg:ident $type:ty, $size:expr })*] []
    ) => {
        $(#[$attribute])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Debug)]
        $vis struct $name {
            function: $crate::Function,
        }

        #[allow(dead_code)]
        impl $name {
            /// Looks the kernel up, and checks that it was compiled with these parameters.
            ///
            /// # Errors
            /// As `Module::function` and `Function::check_parameters`.
            $vis fn load(module: &$crate::Module) -> $crate::Result<Self> {
                Self::from_function(module.function($symbol)?)
            }

            /// Checks that the kernel was compiled with these parameters.
            ///
            /// # Errors
            /// As `Function::check_parameters`.
            $vis fn from_function(function: $crate::Function) -> $crate::Result<Self> {
                $crate::kernel::check(&function, &[$((::core::stringify!($arg), $size)),*])?;
                ::core::result::Result::Ok(Self { function })
            }

            /// The kernel as a function without parameter types.
            $vis fn function(&self) -> &$crate::Function {
                &self.function
            }

            /// Prepares a launch with these arguments; the block size is still to be set.
            #[allow(clippy::too_many_arguments, non_snake_case)]
            $vis fn on<'launch, __Kind: $crate::StreamKind>(
                &'launch self,
                stream: &'launch $crate::Stream<__Kind>,
                $($arg: $type),*
            ) -> $crate::Launch<'launch, __Kind> {
                // Reports a type that cannot be a parameter as such, not as a lifetime error.
                const { let _: &[usize] = &[$($size),*]; }
                stream.kernel(&self.function)$(.arg($arg))*
            }
        }
    };
}
