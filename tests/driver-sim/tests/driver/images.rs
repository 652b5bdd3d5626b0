//! Arrays, textures and surfaces: what may be copied and destroyed.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cuda_sim::ViolationKind::{DanglingHandle, OutOfRange, Race, UseAfterFree};
use cuda_sim::{LeakKind, register_kernel};
use cuda_sys::*;

use crate::support::*;

pub(crate) fn descriptor(flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: 4,
        Depth: 0,
        Format: CU_AD_FORMAT_UNSIGNED_INT16,
        NumChannels: 2,
        Flags: flags,
    }
}

pub(crate) fn array(flags: u32) -> CUarray {
    let mut array = null_mut();
    ok!(cuArray3DCreate_v2(&mut array, &descriptor(flags)));
    array
}

/// Describes a copy from pinned memory to a part of an array, in bytes and rows.
fn upload(from: &Pinned, array: CUarray, at: [usize; 2], size: [usize; 2]) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: from.0,
        srcPitch: size[0],
        srcHeight: size[1],
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: array,
        dstXInBytes: at[0],
        dstY: at[1],
        WidthInBytes: size[0],
        Height: size[1],
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

pub(crate) fn resource(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource =
        CUDA_RESOURCE_DESC { resType: CU_RESOURCE_TYPE_ARRAY, ..CUDA_RESOURCE_DESC::default() };
    resource.res.array.hArray = array;
    resource
}

#[test]
fn copies_stay_within_their_array() {
    let session = begin();
    bind(0);
    let (s, array, bytes) = (stream(), array(0), Pinned::new(&[9; 128]));
    ok!(cuMemcpy3DAsync_v2(&upload(&bytes, array, [0, 0], [32, 4]), s));
    ok!(cuMemcpy3DAsync_v2(&upload(&bytes, array, [28, 3], [4, 1]), s));
    for (at, size) in [([4, 0], [32, 1]), ([0, 1], [32, 4])] {
        let copy = upload(&bytes, array, at, size);
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DAsync_v2(&copy, s));
        assert_eq!(violations(&session), [OutOfRange]);
    }
    ok!(cuArrayDestroy(array));
    let raced = violations(&session);
    assert!(!raced.is_empty(), "the copies are still queued");
    assert!(raced.iter().all(|kind| *kind == Race), "{raced:?}");
    let copy = upload(&bytes, array, [0, 0], [4, 1]);
    fails!(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3DAsync_v2(&copy, s));
    assert_eq!(violations(&session), [DanglingHandle]);
    ok!(cuStreamSynchronize(s));
    violations(&session);
    ok!(cuStreamDestroy_v2(s));
    drop(bytes);
    session.assert_clean();
}

#[test]
fn odd_arrays_are_refused() {
    let session = begin();
    bind(0);
    let mut array = null_mut();
    let base = descriptor(0);
    for odd in [
        CUDA_ARRAY3D_DESCRIPTOR { Width: 0, ..base },
        CUDA_ARRAY3D_DESCRIPTOR { Width: 1 << 40, ..base },
        CUDA_ARRAY3D_DESCRIPTOR { NumChannels: 3, ..base },
        CUDA_ARRAY3D_DESCRIPTOR { Height: 0, Depth: 2, ..base },
        CUDA_ARRAY3D_DESCRIPTOR { Depth: 6, Flags: 4, ..base },
    ] {
        fails!(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&mut array, &odd));
    }
    ok!(cuCtxSetCurrent(null_mut()));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuArray3DCreate_v2(&mut array, &base));
    session.assert_clean();
}

#[test]
fn objects_are_of_what_exists() {
    let session = begin();
    bind(0);
    let (plain, drawn) = (array(0), array(2));
    let texture = CUDA_TEXTURE_DESC::default();
    let (mut sampled, mut surface) = (0, 0);
    let mut coloured = CUDA_TEXTURE_DESC { borderColor: [1.0; 4], ..texture };
    for (mode, border) in [(CU_TR_ADDRESS_MODE_CLAMP, 0.0), (CU_TR_ADDRESS_MODE_BORDER, 1.0)] {
        coloured.addressMode[1] = mode;
        ok!(cuTexObjectCreate(&mut sampled, &resource(plain), &coloured, null()));
        let mut back = CUDA_TEXTURE_DESC::default();
        ok!(cuTexObjectGetTextureDesc(&mut back, sampled));
        assert_eq!(back.borderColor, [border; 4]);
        ok!(cuTexObjectDestroy(sampled));
    }
    let (mut own, mut other) = (null_mut(), null_mut());
    ok!(cuCtxGetCurrent(&mut own));
    ok!(cuCtxCreate_v2(&mut other, 0, 0));
    let refused = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    fails!(refused, cuTexObjectCreate(&mut sampled, &resource(plain), &texture, null()));
    fails!(refused, cuSurfObjectCreate(&mut surface, &resource(drawn)));
    ok!(cuCtxDestroy_v2(other));
    ok!(cuCtxSetCurrent(own));
    ok!(cuTexObjectCreate(&mut sampled, &resource(plain), &texture, null()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&mut surface, &resource(plain)));
    ok!(cuSurfObjectCreate(&mut surface, &resource(drawn)));
    let kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    let expected = [LeakKind::Array, LeakKind::Array, LeakKind::Texture, LeakKind::Surface];
    assert_eq!(kinds, expected);
    let mut back = CUDA_RESOURCE_DESC::default();
    ok!(cuTexObjectGetResourceDesc(&mut back, sampled));
    assert_eq!(back.resType, CU_RESOURCE_TYPE_ARRAY);
    fails!(CUDA_ERROR_INVALID_HANDLE, cuSurfObjectDestroy(sampled));
    assert_eq!(violations(&session), [DanglingHandle]);
    ok!(cuTexObjectDestroy(sampled));
    ok!(cuSurfObjectDestroy(surface));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuTexObjectDestroy(sampled));
    assert_eq!(violations(&session), [DanglingHandle]);
    ok!(cuArrayDestroy(plain));
    ok!(cuArrayDestroy(drawn));
    let refused = CUDA_ERROR_INVALID_HANDLE;
    fails!(refused, cuTexObjectCreate(&mut sampled, &resource(plain), &texture, null()));
    assert_eq!(violations(&session), [DanglingHandle]);
    session.assert_clean();
}

#[test]
fn rows_of_a_texture_are_as_wide_as_their_texels() {
    let session = begin();
    bind(0);
    let (texture, mut sampled) = (CUDA_TEXTURE_DESC::default(), 0);
    // The texture needs two rows of 64 texels of four bytes.
    for (bytes, has_room) in [(512 + 255, false), (512 + 256, true)] {
        let address = alloc(bytes);
        let mut plane =
            CUDA_RESOURCE_DESC { resType: CU_RESOURCE_TYPE_PITCH2D, ..Default::default() };
        plane.res.pitch2D = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
            devPtr: address,
            format: CU_AD_FORMAT_FLOAT,
            numChannels: 1,
            width: 64,
            height: 2,
            pitchInBytes: 512,
        };
        if has_room {
            ok!(cuTexObjectCreate(&mut sampled, &plane, &texture, null()));
            ok!(cuTexObjectDestroy(sampled));
        } else {
            fails!(
                CUDA_ERROR_INVALID_VALUE,
                cuTexObjectCreate(&mut sampled, &plane, &texture, null())
            );
            assert_eq!(violations(&session), [OutOfRange]);
        }
        ok!(cuMemFree_v2(address));
    }
    session.assert_clean();
}

#[test]
fn kernels_reach_texels_by_handles() {
    register_kernel(
        "copy_image",
        |launch| vec![launch.draws(0), launch.samples(1)],
        |launch, memory| {
            let from = memory.slice::<u8>(launch.address(1))?;
            memory.slice_mut(launch.address(0), |to| to.copy_from_slice(&from))
        },
    );
    const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
        .visible .entry copy_image(.param .u64 to, .param .u64 from) { add.u32 %r1, %r1, 1; ret; }\0";
    let session = begin();
    bind(0);
    let (mut module, mut function, s) = (null_mut(), null_mut(), stream());
    ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
    ok!(cuModuleGetFunction(&mut function, module, c"copy_image".as_ptr()));
    let (from, to) = (array(0), array(2));
    let (mut sampled, mut drawn) = (0u64, 0u64);
    ok!(cuSurfObjectCreate(&mut drawn, &resource(to)));
    ok!(cuTexObjectCreate(&mut sampled, &resource(from), &CUDA_TEXTURE_DESC::default(), null()));
    let run = |mut drawn: u64, mut sampled: u64| {
        let mut parameters: [*mut c_void; 2] = [(&raw mut drawn).cast(), (&raw mut sampled).cast()];
        let parameters = parameters.as_mut_ptr();
        call!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, parameters, null_mut()))
    };
    let bytes = Pinned::new(&[7; 128]);
    ok!(cuMemcpy3DAsync_v2(&upload(&bytes, from, [0, 0], [32, 4]), s));
    assert_eq!(run(drawn, sampled), CUDA_SUCCESS);
    let back = Pinned::new(&[0; 128]);
    let down = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcArray: to,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: back.0.cast(),
        dstPitch: 32,
        WidthInBytes: 32,
        Height: 4,
        Depth: 1,
        ..Default::default()
    };
    ok!(cuMemcpy3DAsync_v2(&down, s));
    ok!(cuStreamSynchronize(s));
    assert_eq!(back.read(), [7; 128]);
    let other = stream();
    assert_eq!(run(drawn, sampled), CUDA_SUCCESS);
    ok!(cuMemcpy3DAsync_v2(&upload(&bytes, from, [0, 0], [32, 4]), other));
    assert_eq!(violations(&session), [Race; 4], "the kernel reads each row that the copy writes");
    ok!(cuTexObjectDestroy(sampled));
    ok!(cuStreamSynchronize(s));
    assert_eq!(violations(&session), [UseAfterFree]);
    assert_eq!(run(drawn, sampled), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(violations(&session), [DanglingHandle]);
    ok!(cuStreamSynchronize(other));
    ok!(cuSurfObjectDestroy(drawn));
    ok!(cuArrayDestroy(from));
    ok!(cuArrayDestroy(to));
    ok!(cuModuleUnload(module));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(other));
    drop((bytes, back));
    session.assert_clean();
}

#[test]
fn levels_go_with_their_mipmap() {
    let session = begin();
    bind(0);
    let (mut mipmap, mut level) = (null_mut(), null_mut());
    // More levels are requested than there are sizes.
    ok!(cuMipmappedArrayCreate(&mut mipmap, &descriptor(0), 9));
    ok!(cuMipmappedArrayGetLevel(&mut level, mipmap, 3));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&mut level, mipmap, 4));
    ok!(cuMipmappedArrayDestroy(mipmap));
    ok!(cuMipmappedArrayCreate(&mut mipmap, &descriptor(0), 2));
    ok!(cuMipmappedArrayGetLevel(&mut level, mipmap, 1));
    let mut found = CUDA_ARRAY3D_DESCRIPTOR::default();
    ok!(cuArray3DGetDescriptor_v2(&mut found, level));
    assert_eq!((found.Width, found.Height, found.Depth), (4, 2, 0));
    let refused = CUDA_ERROR_INVALID_VALUE;
    fails!(refused, cuMipmappedArrayGetLevel(&mut level, mipmap, 2));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));
    ok!(cuMipmappedArrayDestroy(mipmap));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&mut found, level));
    assert_eq!(violations(&session), [DanglingHandle]);
    session.assert_clean();
}
