//! Textures and surfaces as kernels see them, on real devices only: the simulated driver has no sampling
//! hardware.

use cuda_core::{
    DeviceBuffer, Module, Result, Shape, Stream,
    image::{
        AddressMode, ArrayFlags, ArrayShape, Coordinates, CudaArray, FilterMode, MipmapSampling,
        MipmappedArray, Surface, Texture, TextureDescriptor, TextureSource,
    },
};
use support::gpu_test;

use super::{SHAPE, image, setup};

const PTX: &str = include_str!("../sampling.ptx");

const WIDTH: u32 = 16;
const TEXELS: usize = 16 * 8;

fn ramp() -> Vec<f32> {
    (0..TEXELS).map(|index| index as f32).collect()
}

gpu_test! {
    needs 1, real;
    fn kernels_sample_arrays() -> Result<()> {
        let (_, stream) = setup()?;
        let sample = Module::from_ptx(stream.context(), PTX)?.function("sample")?;
        let mut array = image(&stream, ArrayFlags::default())?;
        stream.upload_to_array(&ramp(), &mut array)?;
        let mut to = stream.alloc_zeroed::<f32>(TEXELS)?;
        let run = |texture: &Texture<f32>,
                   array: &CudaArray<f32>,
                   to: &mut DeviceBuffer<f32>,
                   scale: (f32, f32)| {
            let mut launch = stream.kernel(&sample).elements(TEXELS).arg(texture.bind(array)?).arg(to).arg(WIDTH).arg(scale.0).arg(scale.1).arg(TEXELS as u32);
            // SAFETY: these are the parameters of `sample`; the buffer has as many elements as it writes.
            unsafe { launch.launch() }
        };
        let mut back = vec![0.0; TEXELS];
        let plain = Texture::new(&array, &TextureDescriptor::default())?;
        run(&plain, &array, &mut to, (1.0, 1.0))?;
        stream.download(&to, &mut back)?;
        assert_eq!(back, ramp(), "texel by texel");

        // Three times as wide as the array, beyond the right edge: wrapped around, or clamped.
        let wrapping = TextureDescriptor::default().with_address([AddressMode::Wrap; 3]).with_coordinates(Coordinates::Normalized);
        let wrapping = Texture::new(&array, &wrapping)?;
        run(&wrapping, &array, &mut to, (3.0 / 16.0, 1.0 / 8.0))?;
        stream.download(&to, &mut back)?;
        for (index, value) in back.iter().enumerate() {
            let (x, y) = (index % 16, index / 16);
            assert_eq!(*value, ((3 * x + 1) % 16 + 16 * y) as f32, "{x}, {y}, around");
        }
        run(&plain, &array, &mut to, (3.0, 1.0))?;
        stream.download(&to, &mut back)?;
        for (index, value) in back.iter().enumerate() {
            let (x, y) = (index % 16, index / 16);
            assert_eq!(*value, ((3 * x + 1).min(15) + 16 * y) as f32, "{x}, {y}, clamped");
        }

        // Between two texels of a row, sampling returns their mean.
        let smooth = TextureDescriptor::default().with_filter(FilterMode::Linear);
        let smooth = Texture::new(&array, &smooth)?;
        run(&smooth, &array, &mut to, (0.5, 1.0))?;
        stream.download(&to, &mut back)?;
        // The coordinates are 0.25, 0.75, 1.25 and so on: a quarter and three quarters of the way, clamped at
        // the edges.
        let expected = |x: usize| (x as f32 / 2.0 + 0.25 - 0.5).max(0.0);
        for (x, value) in back[..16].iter().enumerate() {
            assert!((value - expected(x)).abs() < 0.01, "{x}: {value}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, real;
    fn kernels_sample_linear_memory() -> Result<()> {
        let (_, stream) = setup()?;
        let module = Module::from_ptx(stream.context(), PTX)?;
        let (sample, fetch) = (module.function("sample")?, module.function("fetch")?);
        let mut row = stream.alloc::<f32>(TEXELS)?;
        stream.upload(&ramp(), &mut row)?;
        let mut to = stream.alloc_zeroed::<f32>(TEXELS)?;
        let texture = Texture::new(&row, &TextureDescriptor::default())?;
        let mut launch = stream.kernel(&fetch).elements(TEXELS).arg(texture.bind(&row)?).arg(&mut to).arg(TEXELS as u32);
        // SAFETY: the parameters of `fetch`; as many elements as it writes.
        unsafe { launch.launch() }?;
        let mut back = vec![0.0; TEXELS];
        drop(launch);
        stream.download(&to, &mut back)?;
        assert_eq!(back, ramp(), "a row");

        let mut rows = stream.alloc_zeroed::<f32>(128 * 8)?;
        for (y, texels) in ramp().chunks(16).enumerate() {
            stream.upload(texels, rows.slice_mut(128 * y..128 * y + 16)?)?;
        }
        let plane = || TextureSource::plane(rows.pitched(Shape::plane(16, 8).with_pitch(512))?);
        let texture = Texture::new(plane()?, &TextureDescriptor::default())?;
        stream.fill(&mut to, 0.0)?;
        let mut launch = stream.kernel(&sample).elements(TEXELS).arg(texture.bind(plane()?)?).arg(&mut to).arg(WIDTH).arg(1.0f32).arg(1.0f32).arg(TEXELS as u32);
        // SAFETY: the parameters of `sample`; as many elements as it writes.
        unsafe { launch.launch() }?;
        drop(launch);
        stream.download(&to, &mut back)?;
        assert_eq!(back, ramp(), "rows");
        Ok(())
    }
}

gpu_test! {
    needs 1, real;
    fn kernels_draw_on_surfaces() -> Result<()> {
        let (device, stream) = setup()?;
        let draw = Module::from_ptx(stream.context(), PTX)?.function("draw")?;
        let mut array = image(&stream, ArrayFlags::SURFACE_LOAD_STORE)?;
        let surface = Surface::new(&array)?;
        let mut launch = stream.kernel(&draw).elements(TEXELS).arg(surface.bind_mut(&mut array)?).arg(WIDTH).arg(TEXELS as u32);
        // SAFETY: the parameters of `draw`; the array has as many texels.
        unsafe { launch.launch() }?;
        drop(launch);
        // Downloads on another stream, which waits for the kernel.
        let mut back = vec![0.0; TEXELS];
        device.create_stream()?.download_from_array(&array, &mut back)?;
        assert_eq!(back, ramp());
        Ok(())
    }
}

gpu_test! {
    needs 1, real;
    fn kernels_redraw_surfaces() -> Result<()> {
        let (_, stream) = setup()?;
        let redraw = Module::from_ptx(stream.context(), PTX)?.function("redraw")?;
        let mut array = image(&stream, ArrayFlags::SURFACE_LOAD_STORE)?;
        stream.upload_to_array(&ramp(), &mut array)?;
        let surface = Surface::new(&array)?;
        // The second launch loads what the first stores.
        for _ in 0..2 {
            let mut launch = stream.kernel(&redraw).elements(TEXELS).arg(surface.bind_mut(&mut array)?).arg(WIDTH).arg(TEXELS as u32);
            // SAFETY: the parameters of `redraw`; the array has as many texels.
            unsafe { launch.launch() }?;
        }
        let mut back = vec![0.0; TEXELS];
        stream.download_from_array(&array, &mut back)?;
        for (index, (value, was)) in back.iter().zip(ramp()).enumerate() {
            assert_eq!(*value, 4.0 * was + 3.0, "texel {index}");
        }
        Ok(())
    }
}

/// Reads every texel of an array of many planes through the kernel of that name, and compares it.
#[track_caller]
fn looks_through_every_plane(stream: &Stream, kernel: &str, shape: ArrayShape) -> Result<()> {
    let kernel = Module::from_ptx(stream.context(), PTX)?.function(kernel)?;
    let extent = shape.extent();
    let texels = extent.width * extent.height * extent.depth;
    // All values differ, so that any wrong address shows.
    let values: Vec<f32> = (0..texels).map(|index| 3.0 * index as f32 + 1.0).collect();
    let mut array = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::default())?;
    stream.upload_to_array(&values, &mut array)?;
    let texture = Texture::new(&array, &TextureDescriptor::default())?;
    let mut to = stream.alloc_zeroed::<f32>(texels)?;
    let mut launch = stream
        .kernel(&kernel)
        .elements(texels)
        .arg(texture.bind(&array)?)
        .arg(&mut to)
        .arg(extent.width as u32)
        .arg(extent.height as u32)
        .arg(texels as u32);
    // SAFETY: the parameters of either kernel; as many elements as it writes.
    unsafe { launch.launch() }?;
    drop(launch);
    let mut back = vec![0.0; texels];
    stream.download(&to, &mut back)?;
    for (index, (value, expected)) in back.iter().zip(&values).enumerate() {
        assert_eq!(value, expected, "texel {index} of {shape:?}");
    }
    Ok(())
}

gpu_test! {
    needs 1, real;
    fn kernels_sample_layers() -> Result<()> {
        let (_, stream) = setup()?;
        let shape = ArrayShape::Layered2D { width: 16, height: 8, layers: 5 };
        looks_through_every_plane(&stream, "sample_layers", shape)
    }
}

gpu_test! {
    needs 1, real;
    fn kernels_sample_volumes() -> Result<()> {
        let (_, stream) = setup()?;
        let shape = ArrayShape::D3 { width: 16, height: 8, depth: 4 };
        looks_through_every_plane(&stream, "sample_volume", shape)
    }
}

gpu_test! {
    needs 1, real;
    fn kernels_sample_levels() -> Result<()> {
        let (_, stream) = setup()?;
        let sample = Module::from_ptx(stream.context(), PTX)?.function("sample_level")?;
        let mut levels = MipmappedArray::<f32>::new(stream.context(), SHAPE, 3, ArrayFlags::default())?;
        let value = |level: u32, index: usize| (1000 * level) as f32 + index as f32;
        let mut sizes = Vec::new();
        for level in 0..3 {
            let extent = levels.extent(level)?;
            let texels = extent.width * extent.height;
            let values: Vec<f32> = (0..texels).map(|index| value(level, index)).collect();
            stream.upload_to_array(&values, levels.level_mut(level)?)?;
            sizes.push((extent, texels));
        }
        // Samples the nearest level, without a mix of two.
        let sampling = TextureDescriptor::default().with_coordinates(Coordinates::Normalized).with_mipmap(MipmapSampling::default().with_filter(FilterMode::Point).with_levels(0.0, 2.0));
        let texture = Texture::new(&levels, &sampling)?;
        for (level, (extent, texels)) in (0..).zip(sizes) {
            let mut to = stream.alloc_zeroed::<f32>(texels)?;
            let mut launch = stream.kernel(&sample).elements(texels).arg(texture.bind(&levels)?).arg(&mut to).arg(extent.width as u32).arg(1.0 / extent.width as f32).arg(1.0 / extent.height as f32).arg(level as f32).arg(texels as u32);
            // SAFETY: the parameters of `sample_level`; as many elements as it writes.
            unsafe { launch.launch() }?;
            drop(launch);
            let mut back = vec![0.0; texels];
            stream.download(&to, &mut back)?;
            for (index, found) in back.into_iter().enumerate() {
                assert_eq!(found, value(level, index), "level {level}, texel {index}");
            }
        }
        Ok(())
    }
}
