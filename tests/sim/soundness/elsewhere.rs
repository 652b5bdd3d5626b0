//! Memory of one context that another context is asked to use.

use cuda_core::{
    Context, ContextFlags, Device, DeviceBuffer, Error, Result,
    image::{Texture, TextureDescriptor},
};
use support::kernels;

use super::{clean, device, primary};

/// A module's variable belongs to the module's context, like memory of `cuMemAlloc`.
#[test]
fn globals_are_refused_elsewhere() {
    clean(|_| {
        let (here, there) = (primary(), Device::get(1)?.context()?);
        let created = Context::new(device(), ContextFlags::default())?;
        let module = kernels::load(&here)?;
        let mut counter = module.global::<u32>("counter")?;
        let refused = |context: &Context, counter: &mut DeviceBuffer<u32>| -> Result<Error> {
            let stream = context.create_stream()?;
            let increment = kernels::get(context, "increment")?;
            let mut launch = stream.kernel(&increment).arg(counter);
            // SAFETY: one word.
            Ok(unsafe { launch.launch() }.expect_err("memory of another context"))
        };
        let error = refused(&there, &mut counter)?;
        assert!(matches!(error, Error::WrongDevice(_)), "{error:?}");
        let error = refused(&created, &mut counter)?;
        assert!(matches!(error, Error::WrongContext(_)), "{error:?}");
        there.enable_peer_access(&here)?;
        let stream = there.create_stream()?;
        let increment = kernels::get(&there, "increment")?;
        let mut launch = stream.kernel(&increment).arg(&mut counter);
        // SAFETY: one word.
        unsafe { launch.launch() }?;
        stream.synchronize()?;
        there.disable_peer_access(&here)
    });
}

/// The address that a texture was made for may be reused for memory of another context.
#[test]
fn a_texture_is_not_bound_to_memory_elsewhere() {
    clean(|_| {
        let (here, there) = (primary(), Device::get(1)?.context()?);
        let memory = here.alloc::<f32>(1024)?;
        // SAFETY: memory that outlives both buffers; no work uses it.
        let at =
            |context| unsafe { DeviceBuffer::<f32>::from_raw(memory.as_raw(), 1024, context, ()) };
        let first = at(&here)?;
        let texture = Texture::new(&first, &TextureDescriptor::default())?;
        drop(first);
        assert!(texture.bind(&at(&there)?).is_err());
        texture.bind(&at(&here)?).map(drop)
    });
}
