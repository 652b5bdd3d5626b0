//! Textures and surfaces.

mod sampling;

use cuda_core::{
    Context, ContextFlags, Device, Error, Result, Shape, Stream,
    image::{
        AddressMode, ArrayFlags, ArrayShape, Coordinates, CudaArray, FilterMode, MipmapSampling,
        MipmappedArray, ReadMode, Surface, Texture, TextureDescriptor, TextureSource,
    },
    managed::ManagedBuffer,
};
use support::{gpu_test, kernels, refusal};

fn setup() -> Result<(Device, Stream)> {
    let device = Device::get(0)?;
    Ok((device, device.create_stream()?))
}

const SHAPE: ArrayShape = ArrayShape::D2 { width: 16, height: 8 };

fn image(stream: &Stream, flags: ArrayFlags) -> Result<CudaArray<f32>> {
    CudaArray::new(stream.context(), SHAPE, flags)
}

gpu_test! {
    needs 1;
    fn descriptions_as_the_driver_has_them() -> Result<()> {
        let (_, stream) = setup()?;
        let array = CudaArray::<u8>::new(stream.context(), SHAPE, ArrayFlags::default())?;
        let descriptor = TextureDescriptor::default().with_address([AddressMode::Wrap, AddressMode::Mirror, AddressMode::Clamp]).with_filter(FilterMode::Linear).with_read(ReadMode::NormalizedFloat).with_coordinates(Coordinates::Normalized).with_max_anisotropy(4);
        let texture = Texture::new(&array, &descriptor)?;
        assert_eq!(texture.descriptor()?, descriptor);
        let resource = texture.resource()?;
        assert_eq!(resource.resType, cuda_sys::CU_RESOURCE_TYPE_ARRAY);
        // SAFETY: the type determines which field of the union is valid.
        assert_eq!(unsafe { resource.res.array.hArray }, array.as_raw());
        assert_eq!(texture.device(), stream.device());
        let plain = Texture::new(&array, &TextureDescriptor::default())?;
        assert_eq!(plain.descriptor()?, TextureDescriptor::default());
        assert_ne!(plain.as_raw(), texture.as_raw());
        Ok(texture.close()?)
    }
}

gpu_test! {
    needs 1;
    fn of_everything_that_there_is() -> Result<()> {
        let (_, stream) = setup()?;
        let context = stream.context();
        let default = TextureDescriptor::default();
        // Coordinates of cubes are always normalized.
        let normalized = default.with_coordinates(Coordinates::Normalized);
        for shape in [
            ArrayShape::D1 { width: 16 },
            ArrayShape::D3 { width: 8, height: 4, depth: 2 },
            ArrayShape::Layered1D { width: 8, layers: 3 },
            ArrayShape::Layered2D { width: 8, height: 8, layers: 3 },
            ArrayShape::Cubemap { width: 8 },
            ArrayShape::LayeredCubemap { width: 8, cubes: 2 },
        ] {
            let array = CudaArray::<[u8; 4]>::new(context, shape, ArrayFlags::default())?;
            let texture = Texture::new(&array, &normalized)?;
            texture.bind(&array)?;
        }
        let levels = MipmappedArray::<f32>::new(context, SHAPE, 3, ArrayFlags::default())?;
        let sampling = default.with_coordinates(Coordinates::Normalized).with_mipmap(MipmapSampling::default().with_filter(FilterMode::Linear).with_levels(0.0, 2.0));
        let texture = Texture::new(&levels, &sampling)?;
        assert_eq!(texture.descriptor()?.mipmap, sampling.mipmap);
        texture.bind(&levels)?;

        let row = stream.alloc_zeroed::<f32>(1000)?;
        let texture = Texture::new(&row, &default)?;
        texture.bind(&row)?;
        let resource = texture.resource()?;
        assert_eq!(resource.resType, cuda_sys::CU_RESOURCE_TYPE_LINEAR);
        // SAFETY: the type determines which field of the union is valid.
        assert_eq!(unsafe { resource.res.linear.sizeInBytes }, 4000);

        let rows = stream.alloc_zeroed::<f32>(128 * 50)?;
        let plane = || TextureSource::plane(rows.pitched(Shape::plane(100, 50).with_pitch(512))?);
        let texture = Texture::new(plane()?, &default)?;
        texture.bind(plane()?)?;
        let resource = texture.resource()?;
        assert_eq!(resource.resType, cuda_sys::CU_RESOURCE_TYPE_PITCH2D);
        // SAFETY: the type determines which field of the union is valid.
        let plane = unsafe { resource.res.pitch2D };
        assert_eq!((plane.width, plane.height, plane.pitchInBytes), (100, 50, 512));

        let image = context.alloc_pitched::<f32>(100, 50)?;
        let texture = Texture::new(TextureSource::plane(image.pitched()?)?, &default)?;
        texture.bind(TextureSource::plane(image.pitched()?)?)?;
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn bound_to_what_they_were_made_of_alone() -> Result<()> {
        let (_, stream) = setup()?;
        let (one, two) = (image(&stream, ArrayFlags::default())?, image(&stream, ArrayFlags::default())?);
        let texture = Texture::new(&one, &TextureDescriptor::default())?;
        texture.bind(&one)?;
        assert!(matches!(texture.bind(&two), Err(Error::Invalid(_))));
        let row = stream.alloc_zeroed::<f32>(256)?;
        assert!(matches!(texture.bind(&row), Err(Error::Invalid(_))));
        let texture = Texture::new(&row, &TextureDescriptor::default())?;
        assert!(matches!(texture.bind(row.slice(..255)?), Err(Error::Invalid(_))));
        assert!(matches!(texture.bind(&one), Err(Error::Invalid(_))));
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let (mut one, mut two) = (image(&stream, flags)?, image(&stream, flags)?);
        let surface = Surface::new(&one)?;
        surface.bind(&one)?;
        surface.bind_mut(&mut one)?;
        assert!(matches!(surface.bind_mut(&mut two), Err(Error::Invalid(_))));
        // SAFETY: the type determines which field of the union is valid.
        assert_eq!(unsafe { surface.resource()?.res.array.hArray }, one.as_raw());
        Ok(surface.close()?)
    }
}

gpu_test! {
    needs 1;
    fn s17_arrays_live_as_long_as_their_textures() -> Result<()> {
        let (device, stream) = setup()?;
        let array = image(&stream, ArrayFlags::SURFACE_LOAD_STORE)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let surface = Surface::new(&array)?;
        array.close()?;
        // The driver still returns their descriptions.
        texture.resource()?;
        surface.resource()?;
        drop(texture);
        drop(surface);
        drop((stream, device));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn refused_before_the_driver_is_asked() -> Result<()> {
        let (_, stream) = setup()?;
        let default = TextureDescriptor::default();
        let array = CudaArray::<u32>::new(stream.context(), SHAPE, ArrayFlags::default())?;
        let wrapped = default.with_address([AddressMode::Wrap; 3]);
        let smooth = default.with_filter(FilterMode::Linear);
        let float = default.with_read(ReadMode::NormalizedFloat);
        let refused = refusal(Texture::new(&array, &wrapped));
        assert!(refused.ends_with("`with_coordinates(Coordinates::Normalized)`"), "{refused}");
        for refused in [wrapped, smooth, float] {
            assert!(matches!(Texture::new(&array, &refused), Err(Error::Invalid(_))));
        }
        assert!(matches!(Surface::new(&array), Err(Error::Invalid(_))));
        let levels = MipmappedArray::<u32>::new(stream.context(), SHAPE, 2, ArrayFlags::default())?;
        let refused = refusal(Texture::new(&levels, &default));
        assert!(refused.contains("levels want normalised coordinates"), "{refused}");
        let nothing = stream.alloc::<f32>(0)?;
        assert!(matches!(Texture::new(&nothing, &default), Err(Error::Invalid(_))));
        let rows = stream.alloc::<f32>(1024)?;
        for none in [Shape::plane(0, 4), Shape::plane(4, 0), Shape::volume(4, 4, 2)] {
            let refused = TextureSource::plane(rows.pitched(none)?);
            assert!(matches!(refused, Err(Error::Invalid(_))));
        }
        // No device lets a texture, or a row of one, begin at this offset.
        let refused = Texture::new(rows.slice(1..)?, &default);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        let odd = rows.pitched(Shape::plane(10, 10).with_pitch(44))?;
        let refused = Texture::new(TextureSource::plane(odd)?, &default);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a38_made_and_dropped_with_another_device_current() -> Result<()> {
        let (device, stream) = setup()?;
        let _guard = Device::get(1)?.enter()?;
        let array = image(&stream, ArrayFlags::SURFACE_LOAD_STORE)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let surface = Surface::new(&array)?;
        assert_eq!((texture.device(), surface.device()), (device, device));
        std::thread::scope(|scope| scope.spawn(|| drop((texture, surface))).join()).expect("drops");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s27_objects_of_another_context() -> Result<()> {
        let (device, stream) = setup()?;
        let mut array = image(&stream, ArrayFlags::SURFACE_LOAD_STORE)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let surface = Surface::new(&array)?;
        let created = Context::new(device, ContextFlags::default())?;
        for context in [created, Device::get(1)?.context()?] {
            let near = context.device() == device;
            let one_address = kernels::get(&context, "increment")?;
            let stream = context.create_stream()?;
            let refused = |result| match result {
                Err(Error::WrongContext(_)) => assert!(near),
                Err(Error::WrongDevice(_)) => assert!(!near),
                other => panic!("{other:?}"),
            };
            // SAFETY: the launch is refused.
            refused(unsafe { stream.kernel(&one_address).block(1).arg(texture.bind(&array)?).launch() });
            // SAFETY: the launch is refused.
            refused(unsafe { stream.kernel(&one_address).block(1).arg(surface.bind_mut(&mut array)?).launch() });
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn of_managed_memory() -> Result<()> {
        let (_, stream) = setup()?;
        let mut values = ManagedBuffer::<f32>::new(stream.context(), 256)?;
        stream.fill(&mut values, 1.0)?;
        let texture = Texture::new(&values, &TextureDescriptor::default())?;
        let resource = texture.resource()?;
        assert_eq!(resource.resType, cuda_sys::CU_RESOURCE_TYPE_LINEAR);
        // SAFETY: the type determines which field of the union is valid.
        assert_eq!(unsafe { resource.res.linear.devPtr }, values.as_raw());
        Ok(texture.close()?)
    }
}
