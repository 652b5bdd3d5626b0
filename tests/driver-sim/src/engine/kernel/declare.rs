//! The macro that declares kernels with their parameters, as in C++.

/// Registers kernels, each as one function. The parameters determine what a launch touches, and have their
/// types in the body. A parameter is a value (a number, `bool`, an array, or a struct that is an
/// [`Element`](crate::Element)), `&[T; len]` for elements that the kernel reads, or `&mut [T; len]` for
/// elements that it writes and may read. `len`, of any integer type, may name parameters that are numbers.
/// `in launch` after the parameters names the launch's [`Arguments`](crate::Arguments), for its grid and
/// block.
///
/// The body runs once per launch, not once per thread. If the kernel's parameters have other sizes, the
/// launch is refused, as for a kernel that is not registered.
///
/// For anything else, such as addresses in memory, textures and conditions, use
/// [`register_kernel`](crate::register_kernel).
///
/// ```
/// cuda_sim::kernels! {
///     // __global__ void saxpy(float a, const float *x, float *y, unsigned n)
///     fn saxpy(a: f32, x: &[f32; n], y: &mut [f32; n], n: u32) {
///         y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
///     }
///     // __global__ void twice(float *x), an element for each thread
///     fn twice(x: &mut [f32; launch.threads()]) in launch {
///         x.iter_mut().for_each(|x| *x *= 2.0);
///     }
/// }
/// ```
#[macro_export]
macro_rules! kernels {
    ($($(#[doc = $about:literal])* fn $name:ident($($parameters:tt)*) $(in $launch:ident)? $body:block)*) => {
        $($crate::kernels! {
            @next $name [$($launch)?] $body [0] [] [] [] [] $($parameters)*
        })*
    };
    (@next $name:ident $launch:tt $body:block [$index:expr] [$($sizes:tt)*]
        $values:tt $reads:tt [$($writes:tt)*]
        $x:ident: &mut [$T:ty; $len:expr] $(, $($rest:tt)*)?) => {
        $crate::kernels! {
            @next $name $launch $body [$index + 1] [$($sizes)* ::core::mem::size_of::<u64>(),]
            $values $reads [$($writes)* { $x, $T, $len, $index }] $($($rest)*)?
        }
    };
    (@next $name:ident $launch:tt $body:block [$index:expr] [$($sizes:tt)*]
        $values:tt [$($reads:tt)*] $writes:tt
        $x:ident: &[$T:ty; $len:expr] $(, $($rest:tt)*)?) => {
        $crate::kernels! {
            @next $name $launch $body [$index + 1] [$($sizes)* ::core::mem::size_of::<u64>(),]
            $values [$($reads)* { $x, $T, $len, $index }] $writes $($($rest)*)?
        }
    };
    (@next $name:ident $launch:tt $body:block [$index:expr] [$($sizes:tt)*]
        [$($values:tt)*] $reads:tt $writes:tt
        $x:ident: $T:ty $(, $($rest:tt)*)?) => {
        $crate::kernels! {
            @next $name $launch $body [$index + 1] [$($sizes)* ::core::mem::size_of::<$T>(),]
            [$($values)* { $x, $T, $index }] $reads $writes $($($rest)*)?
        }
    };
    (@next $name:ident [] $($all:tt)*) => {
        $crate::kernels! { @next $name [_launch] $($all)* }
    };
    (@next $name:ident [$launch:ident] $body:block [$count:expr] [$($sizes:tt)*]
        [$({ $v:ident, $V:ty, $at_v:expr })*]
        [$({ $r:ident, $R:ty, $len_r:expr, $at_r:expr })*]
        [$({ $w:ident, $W:ty, $len_w:expr, $at_w:expr })*]) => {
        $crate::register_declared_kernel(
            stringify!($name),
            &[$($sizes)*],
            |$launch: &$crate::Arguments| {
                $(#[allow(unused_variables)] let $v: $V = $launch.value($at_v);)*
                vec![
                    $($launch.reads::<$R>($at_r, ($len_r) as usize),)*
                    $($launch.writes::<$W>($at_w, ($len_w) as usize),)*
                ]
            },
            |$launch: &$crate::Arguments, memory: &mut $crate::Memory<'_>| {
                let _ = &memory;
                $(#[allow(unused_variables)] let $v: $V = $launch.value($at_v);)*
                $(#[allow(unused_variables)] let $r: &[$R] = &memory.slice($launch.address($at_r))?;)*
                $(let mut $w: Vec<$W> = memory.slice($launch.address($at_w))?;)*
                {
                    $(#[allow(unused_variables)] let $w: &mut [$W] = &mut $w;)*
                    // After a `return` in the body, what it wrote is still written back.
                    $crate::run_kernel_body(|| $body);
                }
                $(memory.write_slice($launch.address($at_w), $w)?;)*
                Ok(())
            },
        )
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "kernels are declared as `fn name(a: f32, x: &[f32; n], y: &mut [f32; n], n: u32) { .. }`, \
             without a visibility"
        )
    };
}

/// Runs the body of a kernel.
#[doc(hidden)]
pub fn run_kernel_body(body: impl FnOnce()) {
    body();
}
