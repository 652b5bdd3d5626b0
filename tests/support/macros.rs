//! The macro that declares a GPU test.

/// The tags of [`gpu_test`](crate::gpu_test) as constants, so that an unknown tag does not compile.
#[allow(non_upper_case_globals, reason = "written as tags are")]
pub mod tags {
    macro_rules! tags {
        ($($tag:ident)*) => {$(
            #[doc = concat!("`", stringify!($tag), "`, as [`gpu_test`](crate::gpu_test) describes it.")]
            pub const $tag: () = ();
        )*};
    }

    tags! {
        asynchronous timing heavy faulting real runtime nvrtc cudadevrt nccl cuda_12_0 cuda_12_2 cuda_12_4
        cuda_12_8
    }
}

/// Declares a GPU test: how many devices it needs, its tags, its body.
///
/// ```text
/// gpu_test! { needs 2; fn a01_guard_basic() { .. } }
/// gpu_test! { needs 2, asynchronous; fn a37_sync_other_device() { .. } }
/// gpu_test! { needs 1; fn j02_offsets() -> cuda_core::Result<()> { .. } }
/// ```
///
/// The resulting path contains all of these, `a37_sync_other_device::asynchronous::needs_2`, so that the
/// runner sees in `--list` on which machine each test can run. The tags:
///
/// * `asynchronous`: asserts that a call returns while the device is busy, which is false under
///   `CUDA_LAUNCH_BLOCKING=1` and under a sanitizer;
/// * `timing`: asserts a duration or a rate;
/// * `heavy`: too much work for an interpreter;
/// * `faulting`: makes the device fault, which a sanitizer would report;
/// * `real`: has no meaning on the simulated driver;
/// * `runtime`: needs a libcudart, the one that `CUDA_TESTS_LIBCUDART` names;
/// * `nvrtc`: needs NVRTC;
/// * `cudadevrt`: needs libcudadevrt, the archive that `CUDA_TESTS_LIBCUDADEVRT` names, unless the driver is
///   the simulated one;
/// * `nccl`: needs NCCL, which the simulated driver has;
/// * `cuda_12_0`, `cuda_12_2`, `cuda_12_4`, `cuda_12_8`: needs a driver for that CUDA or a later one.
///
/// An unknown tag does not compile. A plain `cargo test` lists the test as ignored; see [`run`](crate::run())
/// for the setup and checks around the body.
#[macro_export]
macro_rules! gpu_test {
    (
        $(#[$attribute:meta])*
        needs $needs:tt $(, $tag:ident)*;
        fn $name:ident() $(-> $outcome:ty)? $body:block
    ) => {
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "not every body uses its parent's names")]
            use super::*;
            $crate::gpu_test! { @tags [$($tag)*] $needs [$($outcome)?] $body }
        }
    };

    (@tags [$tag:ident $($rest:ident)*] $($test:tt)*) => {
        const _: () = $crate::tags::$tag;
        mod $tag {
            #[allow(unused_imports, reason = "not every body uses its parent's names")]
            use super::*;
            $crate::gpu_test! { @tags [$($rest)*] $($test)* }
        }
    };

    (@tags [] 1 $($test:tt)*) => {
        $crate::gpu_test! { @test needs_1 1 "needs 1 GPU: cargo xtask test-gpu" $($test)* }
    };
    (@tags [] 2 $($test:tt)*) => {
        $crate::gpu_test! { @test needs_2 2 "needs 2 GPUs: cargo xtask test-gpu" $($test)* }
    };
    (@tags [] 4 $($test:tt)*) => {
        $crate::gpu_test! { @test needs_4 4 "needs 4 GPUs: cargo xtask test-gpu" $($test)* }
    };
    (@tags [] 8 $($test:tt)*) => {
        $crate::gpu_test! { @test needs_8 8 "needs 8 GPUs: cargo xtask test-gpu" $($test)* }
    };
    (@test $function:ident $needs:literal $reason:literal [$($outcome:ty)?] $body:block) => {
        #[test]
        // Miri always has the simulated driver.
        #[cfg_attr(not(miri), ignore = $reason)]
        fn $function() {
            fn body() $(-> $outcome)? $body
            $crate::run($needs, module_path!(), body);
        }
    };
}
