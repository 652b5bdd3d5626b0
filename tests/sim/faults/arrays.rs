//! Arrays, textures and surfaces, with a failure at each of their steps.

use cuda_core::{
    Error, PinnedBuffer, Rejected, Result,
    image::{
        ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Surface, Texture, TextureDescriptor,
    },
};
use support::{one_stream, two_streams};

use super::harness::{again, first, sweep};

const SHAPE: ArrayShape = ArrayShape::D2 { width: 4, height: 2 };
const TEXELS: [u16; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn there_and_back() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut array = CudaArray::<u16>::new(&context, SHAPE, ArrayFlags::default())?;
        s.upload_to_array(&TEXELS, &mut array)?;
        let mut buffer = s.alloc::<u16>(8)?;
        t.copy_from_array(&array, &mut buffer)?;
        s.copy_to_array(&buffer, &mut array)?;
        let mut pinned = PinnedBuffer::<u16>::zeroed(&context, 8)?;
        t.copy_from_array(&array, &mut pinned)?;
        assert_eq!(pinned.as_slice()?, TEXELS);
        let mut back = [0; 8];
        let down = s.download_from_array(&array, &mut back);
        assert_eq!(back, if down.is_ok() { TEXELS } else { [0; 8] }, "unchanged after a failure");
        down?;
        array.descriptor()?;
        Ok(array.close()?)
    });
}

#[test]
fn mipmaps() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let flags = ArrayFlags::default();
        let mut array = MipmappedArray::<u16>::new(&context, SHAPE, 2, flags)?;
        stream.upload_to_array(&TEXELS, array.level_mut(0)?)?;
        stream.upload_to_array(&TEXELS[..2], array.level_mut(1)?)?;
        let mut back = [0; 2];
        stream.download_from_array(array.level(1)?, &mut back)?;
        assert_eq!(back, TEXELS[..2]);
        Ok(array.close()?)
    });
}

#[test]
fn textures_and_surfaces() {
    sweep(|| {
        let (_, context) = first()?;
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let array = CudaArray::<u16>::new(&context, SHAPE, flags)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let surface = Surface::new(&array)?;
        texture.descriptor()?;
        texture.resource()?;
        surface.resource()?;
        texture.bind(&array)?;
        surface.close()?;
        drop(array);
        Ok(texture.close()?)
    });
}

/// After a single failure, every step can be repeated.
#[test]
fn each_step_again() {
    sweep(|| {
        let (_, context) = again(first)?;
        let stream = again(|| context.create_stream())?;
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let mut array = again(|| CudaArray::<u16>::new(&context, SHAPE, flags))?;
        let texture = again(|| Texture::new(&array, &TextureDescriptor::default()))?;
        let surface = again(|| Surface::new(&array))?;
        again(|| stream.upload_to_array(&TEXELS, &mut array))?;
        let mut back = [0; 8];
        again(|| stream.download_from_array(&array, &mut back))?;
        assert_eq!(back, TEXELS);
        closed(texture, Texture::close)?;
        closed(surface, Surface::close)?;
        closed(array, CudaArray::close)
    });
}

/// Closes the value; after a failure, also closes what `close` returned.
fn closed<T>(value: T, close: fn(T) -> std::result::Result<(), Rejected<T>>) -> Result<()> {
    match close(value) {
        Ok(()) => Ok(()),
        Err(Rejected { value, .. }) => close(value).map_err(Error::from),
    }
}
