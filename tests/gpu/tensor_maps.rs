//! Tensor maps, with which kernels copy tiles in bulk.

use std::ptr;

use cuda_core::tensor_map::{TensorFill, TensorMap, TensorPromotion, TensorSwizzle, TensorTiles};
use cuda_core::{Device, Module, Result, Stream, kernel, sys};
use support::{gpu_test, refusal, report};

kernel! {
    fn copy_tile(from: TensorMap, to: TensorMap, x: u32, y: u32);
}

const WIDTH: usize = 40;
const HEIGHT: usize = 24;
/// The side of a tile.
const SIDE: usize = 16;

fn stream() -> Result<Stream> {
    Device::get(0)?.create_stream()
}

gpu_test! {
    needs 1, real, cuda_12_0;
    fn m_a_kernel_copies_tiles_by_tensor_maps() -> Result<()> {
        let stream = stream()?;
        if Device::get(0)?.compute_capability()? < (9, 0) {
            report!("no device of compute capability 9.0: no kernel copied by a tensor map");
            return Ok(());
        }
        let kernel = copy_tile::load(&Module::from_ptx(stream.context(), include_str!("tiles.ptx"))?)?;
        let words: Vec<u32> = (0..(WIDTH * HEIGHT) as u32).collect();
        let from = stream.upload_new(&words[..])?;
        let mut to = stream.alloc_zeroed::<u32>(WIDTH * HEIGHT)?;
        let tiles = TensorTiles::new([WIDTH, HEIGHT], [SIDE, SIDE]);
        let source = TensorMap::reading(&from, &tiles)?;
        let mut target = TensorMap::writing(&mut to, &tiles)?;
        // Tiles inside the tensor, across two edges, and across one. Tiles begin at a multiple of 16 bytes.
        for (x, y) in [(4, 5), (32, 20), (32, 0)] {
            // SAFETY: the kernel reads and writes through its maps, within their tensors.
            unsafe { kernel.on(&stream, &source, &mut target, x, y).grid(1).block(1).launch() }?;
        }
        let copied = |x: usize, y: usize| {
            let within = |at: usize, start: usize| (start..start + SIDE).contains(&at);
            within(x, 4) && within(y, 5) || within(x, 32) && (within(y, 20) || within(y, 0))
        };
        let expected = words.iter().enumerate();
        let expected = expected.map(|(at, word)| if copied(at % WIDTH, at / WIDTH) { *word } else { 0 });
        assert_eq!(stream.download_vec(&to)?, expected.collect::<Vec<_>>());
        Ok(())
    }
}

/// Returns whether the driver accepts a map of these tiles, of `u32` at this address.
fn accepts(address: u64, tiles: &TensorTiles) -> bool {
    let mut raw = sys::CUtensorMap::default();
    let shape: Vec<u64> = tiles.shape.iter().map(|len| *len as u64).collect();
    let strides: Vec<u64> = tiles.strides.iter().flatten().map(|stride| *stride as u64).collect();
    let [tile, steps] = [&tiles.tile, &tiles.steps]
        .map(|list| list.iter().map(|len| *len as u32).collect::<Vec<_>>());
    let swizzle = match tiles.swizzle {
        TensorSwizzle::Bytes32 => sys::CU_TENSOR_MAP_SWIZZLE_32B,
        TensorSwizzle::Bytes64 => sys::CU_TENSOR_MAP_SWIZZLE_64B,
        TensorSwizzle::Bytes128 => sys::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => sys::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    // SAFETY: each list has a number per dimension, the strides one less; the map is a local variable.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut raw,
            sys::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            shape.len() as u32,
            ptr::without_provenance_mut(address as usize),
            shape.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            sys::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            sys::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code == sys::CUDA_SUCCESS
}

gpu_test! {
    needs 1, cuda_12_0;
    fn m_tensor_maps_refuse_what_the_driver_refuses() -> Result<()> {
        let stream = stream()?;
        let memory = stream.alloc_zeroed::<u32>(WIDTH * HEIGHT)?;
        // The raw calls need a current context.
        let _current = stream.context().enter()?;
        let of = |tile: [usize; 2]| TensorTiles::new([WIDTH, HEIGHT], tile).with_strides([4 * WIDTH]);
        let address = memory.as_raw();
        let cube = |tile: usize| TensorTiles::new([8, 8, 8], [tile, 8, 8]).with_strides([32, 256]);
        let good = [
            of([16, 16]),
            of([32, 16]).with_swizzle(TensorSwizzle::Bytes128),
            of([16, 16]).with_swizzle(TensorSwizzle::Bytes64),
            of([8, 256]).with_swizzle(TensorSwizzle::Bytes32),
            of([16, 16]).with_steps([1, 8]),
            TensorTiles::new([WIDTH], [256]).with_strides([]),
            TensorTiles::new([WIDTH, 2], [16, 2]).with_strides([4 * WIDTH + 16]),
            cube(8),
        ];
        for tiles in &good {
            let made = TensorMap::reading(&memory, tiles);
            assert!(made.is_ok(), "{tiles:?}: {made:?}");
            assert!(accepts(address, tiles), "{tiles:?}");
        }
        let floats = memory.as_view().cast::<f32>()?;
        let encoded = |tiles: &TensorTiles| TensorMap::reading(floats, tiles).map(|it| it.as_raw().opaque);
        let plain = encoded(&good[0])?;
        assert_ne!(encoded(&of([16, 16]).with_promotion(TensorPromotion::Bytes256))?, plain);
        assert_ne!(encoded(&of([16, 16]).with_fill(TensorFill::Nan))?, plain);
        assert_eq!(encoded(&of([16, 16]).with_fill(TensorFill::Zero))?, plain);
        let bad = [
            (of([3, 16]), "a multiple of 16 bytes"),
            (of([512, 1]), "one element to 256"),
            (of([16, 0]), "one element to 256"),
            (of([16, 16]).with_swizzle(TensorSwizzle::Bytes32), "the bytes of the swizzle"),
            (of([64, 16]).with_swizzle(TensorSwizzle::Bytes128), "the bytes of the swizzle"),
            (of([16, 16]).with_steps([1, 9]), "from 1 to 8"),
            (of([16, 16]).with_steps([1, 0]), "from 1 to 8"),
            (of([16, 16]).with_strides([4 * WIDTH + 4]), "multiples of 16"),
            (TensorTiles::new([0, 1], [16, 1]).with_strides([16]), "one element to 2^32"),
            (TensorTiles::new(vec![1; 6], vec![4; 6]).with_strides(vec![16; 5]), "one dimension to five"),
        ];
        for (tiles, why) in &bad {
            let refused = refusal(TensorMap::reading(&memory, tiles).map(drop));
            assert!(refused.contains(why), "{refused}");
            assert!(!accepts(address, tiles), "{tiles:?}");
        }
        let shifted = memory.slice(1..)?;
        assert!(!accepts(shifted.as_raw(), &of([16, 16])));
        let refused = refusal(TensorMap::reading(shifted, &of([16, 16])).map(drop));
        assert!(refused.contains("the memory begins at a multiple of 16"), "{refused}");
        // The driver does not know or ignores these values, or would need more arguments to check them.
        let only_here = [
            (TensorTiles::new([], []), "one dimension to five"),
            (TensorTiles::new([WIDTH, HEIGHT], [16]), "the same number of dimensions"),
            (of([16, 16]).with_strides([]), "a stride for each dimension but"),
            (of([16, 16]).with_fill(TensorFill::Nan), "only floating-point numbers"),
            (of([16, 16]).with_steps([2, 1]), "the innermost dimension has steps of 1"),
            (TensorTiles::new([WIDTH, HEIGHT + 1], [16, 16]), "4000 bytes from its first to its last element, and the memory 3840"),
        ];
        for (tiles, why) in only_here {
            let refused = refusal(TensorMap::reading(&memory, &tiles).map(drop));
            assert!(refused.contains(why), "{refused}");
        }
        Ok(())
    }
}
