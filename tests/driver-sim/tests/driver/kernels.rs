//! Kernels with and without closures.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sim::{Session, Trap, ViolationKind, register_kernel};
use cuda_sys::*;

use crate::support::*;

const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
    .visible .entry scale(.param .u64 x, .param .f64 by, .param .u32 n) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry reader(.param .u64 x) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry stray(.param .u64 x) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry outside(.param .u64 x) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry unknown(.param .u64 x) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry declared(.param .u64 x, .param .u32 n) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry other(.param .u64 x, .param .u64 n) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry mixed(.param .f32 a, .param .u64 x, .param .u64 y, .param .u16 n)
        { add.u32 %r1, %r1, 1; ret; }
    .visible .entry longer(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
        { add.u32 %r1, %r1, 1; ret; }
    .visible .entry fewer(.param .f32 a, .param .u64 x, .param .u64 y) { add.u32 %r1, %r1, 1; ret; }
    .visible .entry of_values(.param .align 4 .b8 pair[8], .param .u8 on, .param .u64 rows)
        { add.u32 %r1, %r1, 1; ret; }
    .visible .entry bad_body() { add.u32 %r1, %r1, 1; ret; }
    .visible .entry bad_declaration() { add.u32 %r1, %r1, 1; ret; }
    .visible .entry nothing() { ret; }
    .visible .entry placed(.param .b8 a, .param .align 16 .b8 b[20], .param .b8 c[3],
        .param .align 4 .b8 d[16], .param .u64 .ptr .global .align 16 e) { ret; }\0";

/// Launches a kernel with four threads and waits for it. Returns the codes of both calls.
fn launch(name: &str, stream: CUstream, parameters: &mut [*mut c_void]) -> [CUresult; 2] {
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
    let name = format!("{name}\0");
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr().cast()));
    let parameters = parameters.as_mut_ptr();
    let launched =
        call!(cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, stream, parameters, null_mut()));
    let waited = call!(cuStreamSynchronize(stream));
    call!(cuModuleUnload(module));
    [launched, waited]
}

fn only(session: &Session, kind: ViolationKind, words: &str) {
    let found = session.take_violations();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, kind);
    assert!(found[0].message.contains(words), "{}", found[0].message);
}

#[test]
fn numbers_and_slices_are_typed() {
    register_kernel(
        "scale",
        |launch| vec![launch.writes::<i16>(0, launch.value::<u32>(2) as usize)],
        |launch, memory| {
            assert_eq!((launch.grid(), launch.block()), ([1; 3], [4, 1, 1]));
            let by = launch.value::<f64>(1);
            memory.slice_mut(launch.address(0), |x: &mut [i16]| {
                x.iter_mut().for_each(|x| *x = (f64::from(*x) * by) as i16);
            })
        },
    );
    scene(8, |_, [s], mut x| {
        let (mut by, mut back) = (-2.5_f64, [0_i16; 4]);
        ok!(cuMemsetD16Async(x, 6, 4, s));
        for mut n in [3_u32, 0] {
            let mut parameters = [(&raw mut x).cast(), (&raw mut by).cast(), (&raw mut n).cast()];
            assert_eq!(launch("scale", s, &mut parameters), [CUDA_SUCCESS; 2]);
        }
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), x, 8, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(back, [-15, -15, -15, 6]);
    });
}

#[test]
fn a_declared_kernel_has_parameters_of_its_sizes() {
    cuda_sim::kernels! {
        /// What it wrote before a `return` is kept.
        fn declared(x: &mut [u16; n], n: u32) in launch {
            x.iter_mut().for_each(|x| *x += n as u16 + launch.block()[0] as u16);
            if n == 3 {
                return;
            }
            x.fill(0);
        }
        fn other(x: &mut [u16; n], n: u32) {
            x.fill(0);
        }
    }
    scene(8, |session, [s], mut x| {
        ok!(cuMemsetD16Async(x, 6, 4, s));
        let (mut n, mut wide, mut back) = (3_u32, 3_u64, [0_u16; 4]);
        let mut parameters = [(&raw mut x).cast(), (&raw mut n).cast()];
        assert_eq!(launch("declared", s, &mut parameters), [CUDA_SUCCESS; 2]);
        let mut parameters = [(&raw mut x).cast(), (&raw mut wide).cast()];
        let [launched, _] = launch("other", s, &mut parameters);
        assert_eq!(launched, CUDA_ERROR_NOT_SUPPORTED);
        only(session, ViolationKind::UnknownKernel, "`other`, with parameters of [8, 8] bytes");
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), x, 8, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(back, [13, 13, 13, 6]);
    });
}

#[test]
fn a_declared_kernel_has_numbers_arrays_and_slices() {
    cuda_sim::kernels! {
        fn mixed(a: f32, x: &[f64; n], y: &mut [u8; 2 * n], n: u16) {
            y.fill(n as u8 + a as u8 + x.len() as u8);
        }
        fn longer(a: f32, x: &[f64; n], y: &mut [u8; 2 * n], n: u16) {
            let _ = (a, x);
            y.fill(n as u8);
        }
        fn fewer(a: f32, x: &[f64; n], y: &mut [u8; 2 * n], n: u16) {
            let _ = (a, x);
            y.fill(n as u8);
        }
        fn of_values(pair: [f32; 2], on: bool, rows: &mut [[f32; 4]; 2]) {
            if on {
                rows[1][..2].copy_from_slice(&pair);
            }
        }
    }
    scene(64, |session, [s], mut x| {
        ok!(cuMemsetD8Async(x, 0, 64, s));
        let (mut a, mut n, mut wide, mut y) = (3.0_f32, 2_u16, 2_u32, x + 16);
        let (a, x_at, y_at) = ((&raw mut a).cast(), (&raw mut x).cast(), (&raw mut y).cast());
        let parameters = &mut [a, x_at, y_at, (&raw mut n).cast()];
        assert_eq!(launch("mixed", s, parameters), [CUDA_SUCCESS; 2]);
        let parameters = &mut [a, x_at, y_at, (&raw mut wide).cast()];
        assert_eq!(launch("longer", s, parameters)[0], CUDA_ERROR_NOT_SUPPORTED);
        only(
            session,
            ViolationKind::UnknownKernel,
            "`longer`, with parameters of [4, 8, 8, 4] bytes",
        );
        assert_eq!(launch("fewer", s, &mut [a, x_at, y_at])[0], CUDA_ERROR_NOT_SUPPORTED);
        only(session, ViolationKind::UnknownKernel, "`fewer`, with parameters of [4, 8, 8] bytes");
        let (mut pair, mut on, mut rows) = ([1.5_f32, -2.0], true, x + 32);
        let parameters =
            &mut [(&raw mut pair).cast(), (&raw mut on).cast(), (&raw mut rows).cast()];
        assert_eq!(launch("of_values", s, parameters), [CUDA_SUCCESS; 2]);
        let (mut bytes, mut floats) = ([0_u8; 5], [0_f32; 8]);
        ok!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), x + 16, 5, s));
        ok!(cuMemcpyDtoHAsync_v2(floats.as_mut_ptr().cast(), x + 32, 32, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(bytes, [7, 7, 7, 7, 0]);
        assert_eq!(floats, [0.0, 0.0, 0.0, 0.0, 1.5, -2.0, 0.0, 0.0]);
    });
}

#[test]
fn a_kernel_without_a_closure_fails_at_its_launch() {
    scene(4, |session, [s], mut x| {
        let mut parameters = [(&raw mut x).cast()];
        let [launched, waited] = launch("unknown", s, &mut parameters);
        assert_eq!((launched, waited), (CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS));
        only(
            session,
            ViolationKind::UnknownKernel,
            "the kernel `unknown`, with parameters of [8] bytes",
        );
    });
}

/// The code alone, 801, does not mention closures.
#[test]
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", not(miri))),
    ignore = "needs a process of its own"
)]
fn a_kernel_without_a_closure_is_named_on_stderr() {
    let mut child = again("kernels::a_kernel_without_a_closure_fails_at_its_launch");
    let stderr = child.output().expect("it starts").stderr;
    let stderr = String::from_utf8(stderr).expect("a text");
    let line = "cuda-driver-sim: the simulated driver does not execute PTX: register what the kernel `unknown`, with";
    assert!(stderr.lines().any(|it| it.starts_with(line)), "{stderr}");
}

#[test]
fn a_kernel_that_does_nothing_needs_no_closure() {
    scene(4, |_, [s], _| assert_eq!(launch("nothing", s, &mut []), [CUDA_SUCCESS; 2]));
}

#[test]
fn a_closure_does_what_is_declared() {
    register_kernel(
        "reader",
        |launch| vec![launch.reads::<i16>(0, 3)],
        |launch, memory| memory.slice_mut(launch.address(0), |x: &mut [i16]| x.fill(1)),
    );
    register_kernel(
        "stray",
        |launch| vec![launch.writes::<i16>(0, 3)],
        |launch, memory| {
            let stray = memory.slice::<i16>(launch.address(0) + 2);
            assert_eq!(stray, Err(Trap::Faults(CUDA_ERROR_ILLEGAL_ADDRESS)));
            Ok(())
        },
    );
    scene(8, |session, [s], mut x| {
        ok!(cuMemsetD16Async(x, 6, 4, s));
        let mut parameters = [(&raw mut x).cast()];
        assert_eq!(launch("reader", s, &mut parameters), [CUDA_SUCCESS; 2]);
        only(session, ViolationKind::Undeclared, "declared as read");
        assert_eq!(launch("stray", s, &mut parameters), [CUDA_SUCCESS; 2]);
        only(session, ViolationKind::Undeclared, "where none is declared");
    });
}

#[test]
fn what_is_beyond_pinned_memory_or_not_aligned_faults() {
    register_kernel(
        "outside",
        |_| Vec::new(),
        |launch, memory| {
            let at = launch.address(0);
            let beyond = memory.write(at, &[0; 64]);
            assert_eq!(beyond, Err(Trap::Faults(CUDA_ERROR_ILLEGAL_ADDRESS)));
            let odd = memory.read_u32(at + 1);
            assert_eq!(odd, Err(Trap::Faults(CUDA_ERROR_MISALIGNED_ADDRESS)));
            assert_eq!(memory.read_u32(at), Ok(0));
            Ok(())
        },
    );
    scene(8, |_, [s], _| {
        let mut pinned = null_mut();
        ok!(cuMemHostAlloc(&mut pinned, 8, 0));
        // SAFETY: the memory has eight bytes.
        unsafe { pinned.cast::<u64>().write(0) };
        let mut address = pinned.addr() as CUdeviceptr;
        assert_eq!(launch("outside", s, &mut [(&raw mut address).cast()]), [CUDA_SUCCESS; 2]);
        ok!(cuMemFreeHost(pinned));
    });
}

#[test]
fn a_function_is_no_array() {
    scene(8, |session, [_], _| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        let mut array = null_mut();
        let shape = CUDA_ARRAY3D_DESCRIPTOR {
            Width: 4,
            Format: CU_AD_FORMAT_FLOAT,
            NumChannels: 1,
            ..Default::default()
        };
        ok!(cuArray3DCreate_v2(&mut array, &shape));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(function.cast()));
        drop(session.take_violations());
        ok!(cuArrayDestroy(array));
        ok!(cuModuleUnload(module));
    });
}

#[test]
fn a_panic_is_a_failed_launch() {
    register_kernel("bad_body", |_| Vec::new(), |_, _| panic!("index {} of {}", 7, 4));
    register_kernel("bad_declaration", |a| vec![a.reads::<f32>(3, 1)], |_, _| Ok(()));
    let session = begin();
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    let s = stream();
    let [launched, waited] = launch("bad_declaration", s, &mut []);
    assert_eq!((launched, waited), (CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS));
    only(&session, ViolationKind::KernelPanic, "`bad_declaration` panicked: no parameter 3: ");
    let [launched, waited] = launch("bad_body", s, &mut []);
    assert_eq!((launched, waited), (CUDA_SUCCESS, CUDA_ERROR_LAUNCH_FAILED));
    only(&session, ViolationKind::KernelPanic, "`bad_body` panicked: index 7 of 4");
    fails!(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    call!(cuCtxDestroy_v2(context));
    assert!(session.finish().violations.is_empty());
}

#[test]
fn kernels_use_other_devices_with_access_alone() {
    register_kernel(
        "reader",
        |launch| vec![launch.reads::<u8>(0, 1)],
        |launch, memory| memory.read(launch.address(0), &mut [0]),
    );
    let session = begin();
    let far = bind(1);
    let (mut x, near) = (alloc(64), bind(0));
    let s = stream();
    let run = |x: &mut CUdeviceptr| launch("reader", s, &mut [(&raw mut *x).cast()]);
    assert_eq!(run(&mut x)[0], CUDA_ERROR_ILLEGAL_ADDRESS);
    only(&session, ViolationKind::UnknownAddress, "has no access");
    ok!(cuCtxEnablePeerAccess(far, 0));
    assert_eq!(run(&mut x), [CUDA_SUCCESS; 2]);
    ok!(cuCtxDisablePeerAccess(far));
    ok!(cuCtxSetCurrent(near));
    ok!(cuMemFree_v2(x));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn parameters_lie_at_multiples_of_their_alignments() {
    scene(4, |_, _: [CUstream; 0], _| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(cuModuleGetFunction(&mut function, module, c"placed".as_ptr()));
        let places = [(0, 1), (16, 20), (36, 3), (40, 16), (56, 8)];
        for (index, place) in places.into_iter().enumerate() {
            let (mut offset, mut size) = (0, 0);
            ok!(cuFuncGetParamInfo(function, index, &mut offset, &mut size));
            assert_eq!((offset, size), place, "{index}");
        }
        let (mut offset, none) = (0, null_mut());
        fails!(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 5, &mut offset, none));
        ok!(cuModuleUnload(module));
    });
}
