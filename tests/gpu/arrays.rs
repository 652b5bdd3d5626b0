//! CUDA arrays: every shape and texel type, with every kind of copy.

use std::time::Duration;

use cuda_core::{
    Device, Error, Extent, Origin, PinnedBuffer, Registered, Result, Shape, Stream, f16,
    image::{ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Texel},
    managed::ManagedBuffer,
    pinned::RegisterFlags,
    virtual_memory::VirtualBuffer,
};
use support::{gpu_test, pattern, refusal, stall};

use crate::forms::scaled;

/// How long a stream is stalled if the test itself waits for it.
const PAUSE: Duration = Duration::from_millis(50);

/// One shape of each kind; all sizes differ, so that none can be mistaken for another.
const SHAPES: [ArrayShape; 7] = [
    ArrayShape::D1 { width: 37 },
    ArrayShape::D2 { width: 19, height: 11 },
    ArrayShape::D3 { width: 13, height: 7, depth: 5 },
    ArrayShape::Layered1D { width: 21, layers: 6 },
    ArrayShape::Layered2D { width: 9, height: 10, layers: 4 },
    ArrayShape::Cubemap { width: 8 },
    ArrayShape::LayeredCubemap { width: 4, cubes: 2 },
];

fn setup() -> Result<(Device, Stream)> {
    let device = Device::get(0)?;
    Ok((device, device.create_stream()?))
}

fn make<T: Texel>(stream: &Stream, shape: ArrayShape) -> Result<CudaArray<T>> {
    CudaArray::new(stream.context(), shape, ArrayFlags::default())
}

fn texels(extent: Extent) -> usize {
    extent.width * extent.height * extent.depth
}

fn bytes(seed: u64, array: &CudaArray<u8>) -> Vec<u8> {
    pattern(seed, texels(array.extent()))
}

fn contents<T: Texel + Default>(stream: &Stream, array: &CudaArray<T>) -> Result<Vec<T>> {
    let mut back = vec![T::default(); texels(array.extent())];
    stream.download_from_array(array, &mut back)?;
    Ok(back)
}

gpu_test! {
    needs 1;
    fn every_shape_by_every_way() -> Result<()> {
        let (_, stream) = setup()?;
        for (seed, shape) in (1..).zip(SHAPES) {
            let mut array = make::<u8>(&stream, shape)?;
            let expected = bytes(seed, &array);
            let len = expected.len();
            stream.upload_to_array(&expected, &mut array)?;
            assert_eq!(contents(&stream, &array)?, expected, "{shape:?}, borrowed");

            let mut device = stream.alloc::<u8>(len)?;
            stream.copy_from_array(&array, &mut device)?;
            let mut other = make::<u8>(&stream, shape)?;
            stream.copy_to_array(&device, &mut other)?;
            assert_eq!(contents(&stream, &other)?, expected, "{shape:?}, device");

            let mut pinned = PinnedBuffer::<u8>::zeroed(stream.context(), len)?;
            stream.copy_from_array(&other, &mut pinned)?;
            assert_eq!(pinned.as_slice()?, expected, "{shape:?}, pinned");
            pinned.as_mut_slice()?.reverse();
            stream.copy_to_array(&pinned, &mut array)?;
            stream.copy_to_array(&array, &mut other)?;
            let reversed: Vec<u8> = expected.iter().rev().copied().collect();
            assert_eq!(contents(&stream, &other)?, reversed, "{shape:?}, arrays");
            array.close()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn every_type_of_texel() -> Result<()> {
        let (_, stream) = setup()?;
        fn round_trip<T: Texel + Default + PartialEq + std::fmt::Debug>(
            stream: &Stream,
            of: impl Fn([u8; 16]) -> T,
        ) -> Result<()> {
            let shape = ArrayShape::D2 { width: 5, height: 3 };
            let source: Vec<T> = (0..15)
                .map(|seed| {
                    let bytes = pattern(seed, 16);
                    of(bytes.try_into().expect("16 bytes"))
                })
                .collect();
            let mut array = make::<T>(stream, shape)?;
            let descriptor = array.descriptor()?;
            assert_eq!((descriptor.width, descriptor.height, descriptor.depth), (5, 3, 0));
            assert_eq!((descriptor.format, descriptor.channels), (T::FORMAT, T::CHANNELS));
            stream.upload_to_array(&source, &mut array)?;
            assert_eq!(contents(stream, &array)?, source, "{}", std::any::type_name::<T>());
            Ok(())
        }
        round_trip(&stream, |b| b[0])?;
        round_trip(&stream, |b| [b[0], b[1]])?;
        round_trip(&stream, |b| [b[0], b[1], b[2], b[3]])?;
        round_trip(&stream, |b| b[0] as i8)?;
        round_trip(&stream, |b| [b[0] as i8; 4])?;
        let half = |b: [u8; 16], at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        let word = |b: [u8; 16], at: usize| u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        round_trip(&stream, |b| half(b, 0))?;
        round_trip(&stream, |b| [half(b, 0), half(b, 2)])?;
        round_trip(&stream, |b| [half(b, 0) as i16, half(b, 2) as i16, 0, -1])?;
        // NaN is excluded, which equals nothing.
        round_trip(&stream, |b| f16::from_bits(half(b, 0) & 0xbfff))?;
        round_trip(&stream, |b| [f16::from_bits(half(b, 0) & 0xbfff), f16::from_bits(half(b, 2) & 0xbfff)])?;
        round_trip(&stream, |b| word(b, 0))?;
        round_trip(&stream, |b| [word(b, 0) as i32, word(b, 4) as i32])?;
        round_trip(&stream, |b| [word(b, 0), word(b, 4), word(b, 8), word(b, 12)])?;
        round_trip(&stream, |b| f32::from(half(b, 0)))?;
        round_trip(&stream, |b| [f32::from(half(b, 0)), 1.5, -0.0, f32::from(b[3])])
    }
}

/// Computes on the host the effect of a copy to a part of `array`.
fn put(all: &mut [u8], whole: Extent, origin: Origin, extent: Extent, part: &[u8]) {
    for (index, byte) in part.iter().enumerate() {
        let x = origin.x + index % extent.width;
        let y = origin.y + index / extent.width % extent.height;
        let z = origin.z + index / extent.width / extent.height;
        all[(z * whole.height + y) * whole.width + x] = *byte;
    }
}

gpu_test! {
    needs 1;
    fn j02_parts_leave_the_rest_alone() -> Result<()> {
        let (_, stream) = setup()?;
        for shape in SHAPES {
            let mut array = make::<u8>(&stream, shape)?;
            let whole = array.extent();
            let mut expected = bytes(1, &array);
            stream.upload_to_array(&expected, &mut array)?;
            // From the second to the last but one element of each dimension that has these.
            let inner = |len: usize| if len > 2 { (1, len - 2) } else { (0, len) };
            let (x, width) = inner(whole.width);
            let (y, height) = inner(whole.height);
            let (z, depth) = inner(whole.depth);
            let (origin, extent) = (Origin::new(x, y, z), Extent::new(width, height, depth));
            let part = pattern(2, texels(extent));
            stream.upload_to_array(&part, array.region_mut(origin, extent)?)?;
            put(&mut expected, whole, origin, extent, &part);
            assert_eq!(contents(&stream, &array)?, expected, "{shape:?}, borrowed");

            let mut back = vec![0; part.len()];
            stream.download_from_array(array.region(origin, extent)?, &mut back)?;
            assert_eq!(back, part, "{shape:?}, back");

            // Copies the same part from another array, through device memory.
            let mut buffer = stream.alloc::<u8>(part.len())?;
            stream.copy_from_array(array.region(origin, extent)?, &mut buffer)?;
            let mut other = make::<u8>(&stream, shape)?;
            stream.upload_to_array(&vec![0; expected.len()], &mut other)?;
            stream.copy_to_array(&buffer, other.region_mut(origin, extent)?)?;
            let mut alone = vec![0; expected.len()];
            put(&mut alone, whole, origin, extent, &part);
            assert_eq!(contents(&stream, &other)?, alone, "{shape:?}, device");

            // Copies from array to array, to another position.
            let corner = Origin::ZERO;
            stream.copy_to_array(
                array.region(origin, extent)?,
                other.region_mut(corner, extent)?,
            )?;
            put(&mut alone, whole, corner, extent, &part);
            assert_eq!(contents(&stream, &other)?, alone, "{shape:?}, arrays");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j09_rows_with_gaps() -> Result<()> {
        let (_, stream) = setup()?;
        let shape = ArrayShape::D3 { width: 6, height: 4, depth: 3 };
        let mut array = make::<u16>(&stream, shape)?;
        // Rows are 20 bytes apart, slices 5 rows, without a gap at the end.
        let len = 2 * 5 * 10 + 3 * 10 + 6;
        let rows: Vec<u16> = (0..len as u16).collect();
        let apart = Shape::volume(6, 4, 3).with_pitch(20).with_slice_height(5);
        let mut buffer = stream.alloc::<u16>(len)?;
        stream.upload(&rows, &mut buffer)?;
        stream.copy_to_array(buffer.pitched(apart)?, &mut array)?;
        let place = |index: usize| index / 24 * 50 + index / 6 % 4 * 10 + index % 6;
        let expected: Vec<u16> = (0..72).map(|index| place(index) as u16).collect();
        assert_eq!(contents(&stream, &array)?, expected);

        let mut pinned = PinnedBuffer::<u16>::zeroed(stream.context(), len)?;
        stream.copy_from_array(&array, pinned.pitched_mut(apart)?)?;
        let mut scattered = vec![0; len];
        for index in 0..72 {
            scattered[place(index)] = place(index) as u16;
        }
        assert_eq!(pinned.as_slice()?, scattered, "the gaps are left alone");
        let mut image = stream.context().alloc_pitched::<u16>(6, 4)?;
        let slice = array.region((0, 0, 1), (6, 4))?;
        stream.copy_from_array(slice, image.pitched_mut()?)?;
        let mut flat = make::<u16>(&stream, ArrayShape::D2 { width: 6, height: 4 })?;
        stream.copy_to_array(image.pitched()?, &mut flat)?;
        assert_eq!(contents(&stream, &flat)?, expected[24..48]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn borrowed_slices_of_many_chunks() -> Result<()> {
        let (_, stream) = setup()?;
        // Copies of whole slices, whole rows and parts of rows, each of more than a mebibyte.
        let rows = scaled(5000, 300, 3);
        for shape in [
            ArrayShape::D3 { width: 300, height: rows, depth: 3 },
            ArrayShape::D2 { width: 1000, height: 2 * rows },
            ArrayShape::Layered1D { width: 16 << 10, layers: scaled(80, 17, 2) },
        ] {
            let mut array = make::<[u16; 2]>(&stream, shape)?;
            let len = texels(array.extent());
            let source: Vec<_> = (0..len).map(|at| [at as u16, (at >> 16) as u16]).collect();
            stream.upload_to_array(&source, &mut array)?;
            assert!(contents(&stream, &array)? == source, "{shape:?}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn mipmaps_level_by_level() -> Result<()> {
        let (_, stream) = setup()?;
        for shape in [
            ArrayShape::D2 { width: 20, height: 9 },
            ArrayShape::D3 { width: 8, height: 8, depth: 4 },
            ArrayShape::Layered2D { width: 8, height: 4, layers: 3 },
        ] {
            let flags = ArrayFlags::default();
            let mut array = MipmappedArray::<u8>::new(stream.context(), shape, 3, flags)?;
            assert_eq!((array.levels(), array.shape()), (3, shape));
            let mut levels = Vec::new();
            for level in 0..3 {
                let bytes = pattern(u64::from(level), texels(array.extent(level)?));
                stream.upload_to_array(&bytes, array.level_mut(level)?)?;
                levels.push(bytes);
            }
            for (level, expected) in (0..).zip(&levels) {
                let mut back = vec![0; expected.len()];
                stream.download_from_array(array.level(level)?, &mut back)?;
                assert_eq!(&back, expected, "{shape:?}, level {level}");
            }
            assert!(refusal(array.level(3).map(drop)).contains("there is no level 3 among 3"));
            array.close()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn descriptors_as_the_driver_has_them() -> Result<()> {
        let (_, stream) = setup()?;
        let context = stream.context();
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let shape = ArrayShape::Layered2D { width: 8, height: 4, layers: 3 };
        let array = CudaArray::<f32>::new(context, shape, flags)?;
        let descriptor = array.descriptor()?;
        assert_eq!((descriptor.width, descriptor.height, descriptor.depth), (8, 4, 3));
        assert!(descriptor.flags.contains(flags | ArrayFlags::LAYERED), "{descriptor:?}");
        assert_eq!((array.shape(), array.flags()), (shape, flags));
        assert_eq!(array.device(), stream.device());
        let gather = ArrayFlags::TEXTURE_GATHER;
        let array = CudaArray::<f32>::new(context, ArrayShape::D2 { width: 8, height: 4 }, gather)?;
        assert!(array.descriptor()?.flags.contains(gather));
        let cubes = make::<u8>(&stream, ArrayShape::LayeredCubemap { width: 4, cubes: 2 })?;
        assert_eq!(cubes.descriptor()?.depth, 12);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn refused_before_the_driver_is_asked() -> Result<()> {
        let (_, stream) = setup()?;
        for nothing in [
            ArrayShape::D1 { width: 0 },
            ArrayShape::D2 { width: 1, height: 0 },
            ArrayShape::Layered1D { width: 1, layers: 0 },
        ] {
            assert!(matches!(make::<u8>(&stream, nothing), Err(Error::Invalid(_))));
        }
        let huge = ArrayShape::D3 { width: usize::MAX, height: 2, depth: 2 };
        assert!(matches!(make::<f32>(&stream, huge), Err(Error::SizeOverflow { .. })));
        let shape = ArrayShape::D2 { width: 8, height: 4 };
        let mut array = make::<u8>(&stream, shape)?;
        let mut other = make::<u8>(&stream, ArrayShape::D2 { width: 4, height: 8 })?;
        let short = stream.upload_to_array(&[0; 31], &mut array);
        assert!(matches!(short, Err(Error::LengthMismatch(_))));
        let long = stream.download_from_array(&array, &mut [0; 33]);
        assert!(matches!(long, Err(Error::LengthMismatch(_))));
        let mut buffer = stream.alloc::<u8>(33)?;
        let long = stream.copy_to_array(&buffer, &mut array);
        let message = |refused: Result<()>| refused.expect_err("too long, or turned").to_string();
        let of = "cuMemcpy3DAsync: the source";
        assert_eq!(message(long), format!("{of} holds 33 elements, the destination 32"));
        let short = stream.copy_from_array(&array, &mut buffer);
        assert_eq!(message(short), format!("{of} holds 32 elements, the destination 33"));
        let turned = stream.copy_to_array(&array, &mut other);
        assert_eq!(message(turned), format!("{of} is 8 × 4, the destination 4 × 8"));
        let turned = stream.copy_from_array(&array, buffer.pitched_mut(Shape::plane(4, 8))?);
        assert_eq!(message(turned), format!("{of} is 8 × 4, the destination 4 × 8"));
        let wide = array.region(1, 8);
        assert!(matches!(wide, Err(Error::OutOfBounds(_))));
        let far = array.region((0, usize::MAX), (1, 2));
        assert!(matches!(far, Err(Error::OutOfBounds(_))));
        let flags = ArrayFlags::default();
        for levels in [0, 5] {
            let refused = MipmappedArray::<u8>::new(stream.context(), shape, levels, flags);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{levels}");
        }
        // The array is too large for any device; the driver refuses it.
        assert!(make::<u8>(&stream, ArrayShape::D1 { width: 1 << 40 }).is_err());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j14_parts_of_nothing() -> Result<()> {
        let (_, stream) = setup()?;
        let mut array = make::<u8>(&stream, ArrayShape::D2 { width: 8, height: 4 })?;
        let nothing = Extent::new(0, 4, 1);
        let origin = Origin::new(8, 0, 0);
        stream.upload_to_array(&[], array.region_mut(origin, nothing)?)?;
        stream.download_from_array(array.region(origin, nothing)?, &mut [])?;
        let mut buffer = stream.alloc::<u8>(0)?;
        stream.copy_from_array(array.region(origin, nothing)?, &mut buffer)?;
        stream.copy_to_array(&buffer, array.region_mut(origin, nothing)?)?;
        assert!(array.region(origin, nothing)?.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn managed_and_registered_memory() -> Result<()> {
        let (_, stream) = setup()?;
        let mut array = make::<u32>(&stream, ArrayShape::D1 { width: 100 })?;
        let source: Vec<u32> = (0..100).collect();
        let mut managed = ManagedBuffer::<u32>::new(stream.context(), 100)?;
        stream.upload(&source, &mut managed)?;
        stream.copy_to_array(&managed, &mut array)?;
        let flags = RegisterFlags::PORTABLE;
        let registered = Registered::new(stream.context(), vec![0; 100], flags);
        let mut registered = registered?;
        stream.copy_from_array(&array, &mut registered)?;
        assert_eq!(registered.as_slice()?, source);
        registered.as_mut_slice()?.fill(9);
        stream.copy_to_array(&registered, &mut array)?;
        stream.copy_from_array(&array, &mut managed)?;
        assert_eq!(stream.download_vec(&managed)?, [9; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn buffers_that_grow() -> Result<()> {
        let (_, stream) = setup()?;
        let mut array = make::<u32>(&stream, ArrayShape::D1 { width: 100 })?;
        let mut buffer = VirtualBuffer::<u32>::new(stream.context(), 1000)?;
        buffer.grow_to(100)?;
        let source: Vec<u32> = (0..100).collect();
        stream.upload(&source, &mut buffer)?;
        stream.copy_to_array(&buffer, &mut array)?;
        stream.fill(&mut buffer, 0)?;
        stream.copy_from_array(&array, &mut buffer)?;
        let mut back = vec![0; 100];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, source);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn j11_streams_are_ordered_by_the_array() -> Result<()> {
        let (device, one) = setup()?;
        let two = device.create_stream()?;
        let mut array = make::<u32>(&one, ArrayShape::D2 { width: 16, height: 16 })?;
        let mut buffer = one.alloc::<u32>(256)?;
        let mut pinned = PinnedBuffer::<u32>::zeroed(one.context(), 256)?;
        // Warm-up.
        one.fill(&mut buffer, 1)?;
        one.copy_to_array(&buffer, &mut array)?;
        two.copy_from_array(&array, &mut pinned)?;
        assert_eq!(pinned.as_slice()?, [1; 256]);
        let stalled = stall(one.as_raw());
        one.fill(&mut buffer, 2)?;
        one.copy_to_array(&buffer, &mut array)?;
        two.copy_from_array(&array, &mut pinned)?;
        one.fill(&mut buffer, 3)?;
        assert!(pinned.try_as_slice()?.is_none());
        stalled.release();
        assert_eq!(pinned.as_slice()?, [2; 256]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_array_dropped_before_its_work() -> Result<()> {
        let (_, stream) = setup()?;
        let shape = ArrayShape::D2 { width: 16, height: 16 };
        let mut array = make::<u32>(&stream, shape)?;
        let mut pinned = PinnedBuffer::<u32>::zeroed(stream.context(), 256)?;
        stream.upload_to_array(&[7; 256], &mut array)?;
        stream.copy_from_array(&array, &mut pinned)?;
        array.synchronize_mut()?;
        pinned.as_mut_slice()?.fill(0);
        let stalled = stall(stream.as_raw());
        stream.copy_from_array(&array, &mut pinned)?;
        array.synchronize()?; // only for writers
        assert!(pinned.try_as_slice()?.is_none());
        stalled.release_after(PAUSE);
        drop(array);
        assert_eq!(pinned.try_as_slice()?, Some(&[7; 256][..]), "the drop has waited");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a38_made_and_dropped_with_another_device_current() -> Result<()> {
        let (device, stream) = setup()?;
        let there = Device::get(1)?;
        let _guard = there.enter()?;
        let mut array = make::<u8>(&stream, SHAPES[2])?;
        assert_eq!(array.device(), device);
        let expected = bytes(3, &array);
        stream.upload_to_array(&expected, &mut array)?;
        let mut buffer = stream.alloc::<u8>(expected.len())?;
        stream.copy_from_array(&array, &mut buffer)?;
        stream.copy_to_array(&buffer, &mut array)?;
        assert_eq!(contents(&stream, &array)?, expected);
        let remote = there.create_stream()?;
        let refused = remote.upload_to_array(&expected, &mut array);
        assert!(matches!(refused, Err(Error::WrongDevice(_))));
        let elsewhere = remote.alloc::<u8>(expected.len())?;
        let refused = stream.copy_to_array(&elsewhere, &mut array);
        assert!(matches!(refused, Err(Error::WrongDevice(_))));
        std::thread::scope(|scope| scope.spawn(|| drop(array)).join()).expect("drops");
        Ok(())
    }
}
