//! Arrays: one call per copy, and a guard per creation.

use cuda_core::{
    Extent, PinnedBuffer,
    image::{
        ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Surface, Texture, TextureDescriptor,
    },
};

use super::*;

const COPY_3D: &str = "cuMemcpy3DAsync_v2";

/// The calls of a creation or destruction: context made current, capture mode relaxed.
fn guarded(call: &'static str) -> Vec<&'static str> {
    entered([EXCHANGE, call, EXCHANGE])
}

const SHAPE: ArrayShape = ArrayShape::D2 { width: 8, height: 8 };

#[test]
fn copies_cost_1() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut array = driver.expect(guarded("cuArray3DCreate_v2"), || {
            CudaArray::<u32>::new(&context, SHAPE, ArrayFlags::default())
        })?;
        let mut device = stream.alloc::<u32>(64)?;
        let mut pinned = PinnedBuffer::<u32>::zeroed(&context, 64)?;
        stream.upload(&[0; 64], &mut device)?;
        driver.expect([COPY_3D], || stream.copy_to_array(&device, &mut array))?;
        driver.expect([COPY_3D], || stream.copy_from_array(&array, &mut device))?;
        driver.expect([COPY_3D], || stream.copy_from_array(&array, &mut pinned))?;
        // The chunk that small uploads share exists already.
        driver.expect([COPY_3D], || stream.upload_to_array(&[1; 64], &mut array))?;
        stream.synchronize()?;
        let nothing = Extent::new(0, 1, 1);
        let part = array.region_mut(0, nothing)?;
        driver.expect([], || stream.upload_to_array(&[], part))?;
        driver.refused(|| stream.upload_to_array(&[1; 63], &mut array));
        driver.refused(|| {
            CudaArray::<u8>::new(&context, ArrayShape::D1 { width: 0 }, ArrayFlags::default())
        });
        array.synchronize()?;
        Ok(driver.expect(guarded("cuArrayDestroy"), || array.close())?)
    });
}

#[test]
fn mipmaps_cost_1_a_level() {
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        let level = "cuMipmappedArrayGetLevel";
        let making = [guarded("cuMipmappedArrayCreate"), entered([level, level])].concat();
        let array = driver.expect(making, || {
            MipmappedArray::<u32>::new(&context, SHAPE, 2, ArrayFlags::default())
        })?;
        driver.expect(guarded("cuMipmappedArrayDestroy"), || drop(array));
        Ok(())
    });
}

#[test]
fn textures_and_surfaces_cost_1() {
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let mut array = CudaArray::<f32>::new(&context, SHAPE, flags)?;
        let texture = driver.expect(guarded("cuTexObjectCreate"), || {
            Texture::new(&array, &TextureDescriptor::default())
        })?;
        let surface = driver.expect(guarded("cuSurfObjectCreate"), || Surface::new(&array))?;
        driver.expect([], || texture.bind(&array).map(drop))?;
        driver.expect([], || surface.bind_mut(&mut array).map(drop))?;
        driver.expect(guarded("cuTexObjectDestroy"), || drop(texture));
        // The surface keeps the array alive.
        driver.expect([], || array.close())?;
        let both = [guarded("cuSurfObjectDestroy"), guarded("cuArrayDestroy")].concat();
        driver.expect(both, || drop(surface));
        Ok(())
    });
}
