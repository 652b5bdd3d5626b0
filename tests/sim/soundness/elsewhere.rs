//! Memory of one context used by another.

use cuda_core::{
    Context, ContextFlags, Device, DeviceBuffer, DeviceSliceMut, Error, Graph, MemoryPool,
    PeerAccess, Result, Stream,
    image::{Texture, TextureDescriptor},
    virtual_memory::VirtualBuffer,
};
use cuda_sim::Fault;
use support::kernels;

use super::{clean, device, primary};

/// A module's variable belongs to the module's context, like memory from `cuMemAlloc`.
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
            let mut launch = stream.kernel(&increment).block(1).arg(counter);
            // SAFETY: the kernel accesses one word.
            Ok(unsafe { launch.launch() }.expect_err("memory of another context"))
        };
        let error = refused(&there, &mut counter)?;
        assert!(matches!(error, Error::WrongDevice(_)), "{error:?}");
        let error = refused(&created, &mut counter)?;
        assert!(matches!(error, Error::WrongContext(_)), "{error:?}");
        there.enable_peer_access(&here)?;
        let stream = there.create_stream()?;
        let increment = kernels::get(&there, "increment")?;
        let mut launch = stream.kernel(&increment).block(1).arg(&mut counter);
        // SAFETY: the kernel accesses one word.
        unsafe { launch.launch() }?;
        stream.synchronize()?;
        there.disable_peer_access(&here)
    });
}

/// The address that a texture was created for may be reused for memory of another context.
#[test]
fn a_texture_is_not_bound_to_memory_elsewhere() {
    clean(|_| {
        let (here, there) = (primary(), Device::get(1)?.context()?);
        let memory = here.alloc::<f32>(1024)?;
        // SAFETY: the memory outlives both buffers, and no work uses it.
        let at =
            |context| unsafe { DeviceBuffer::<f32>::from_raw(memory.as_raw(), 1024, context, ()) };
        let first = at(&here)?;
        let texture = Texture::new(&first, &TextureDescriptor::default())?;
        drop(first);
        assert!(texture.bind(&at(&there)?).is_err());
        texture.bind(&at(&here)?).map(drop)
    });
}

/// Launches `add_one` on memory of the other device.
fn add_one(stream: &Stream, x: DeviceSliceMut<'_, u32>) -> Result<()> {
    let (function, len) = (kernels::get(stream.context(), "add_one")?, x.len() as u32);
    let mut launch = stream.kernel(&function).elements(len as usize).arg(x).arg(len);
    // SAFETY: the memory has as many elements as the kernel writes.
    unsafe { launch.launch() }
}

#[test]
fn virtual_memory_is_refused_where_it_was_not_opened() {
    clean(|_| {
        let (peer, stream) = (Device::get(1)?, Device::get(1)?.create_stream()?);
        let mut buffer = VirtualBuffer::<u32>::new(&primary(), 100)?;
        buffer.grow_to(100)?;
        device().create_stream()?.fill(&mut buffer, 0)?;
        for access in [PeerAccess::None, PeerAccess::ReadWrite, PeerAccess::None] {
            if buffer.access(peer)? != access {
                buffer.set_access(peer, access)?;
            }
            let launched = add_one(&stream, buffer.as_view_mut());
            match access {
                PeerAccess::ReadWrite => launched?,
                _ => assert!(matches!(launched, Err(Error::WrongDevice(_))), "{launched:?}"),
            }
        }
        Ok(())
    });
}

/// The call that changes a device's access returns an error of earlier work.
#[test]
fn virtual_memory_whose_access_was_changed_with_an_error() {
    clean(|session| {
        let (peer, stream) = (Device::get(1)?, Device::get(1)?.create_stream()?);
        let mut buffer = VirtualBuffer::<u32>::new(&primary(), 100)?;
        buffer.grow_to(100)?;
        device().create_stream()?.fill(&mut buffer, 0)?;
        for (takes_effect, access) in [
            (false, PeerAccess::ReadWrite),
            (true, PeerAccess::ReadWrite),
            (false, PeerAccess::None),
            (true, PeerAccess::None),
        ] {
            let call = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemSetAccess");
            session.inject(if takes_effect { call.takes_effect() } else { call });
            assert!(buffer.set_access(peer, access).is_err());
            let open = buffer.access(peer)? == PeerAccess::ReadWrite;
            assert_eq!(open, (access == PeerAccess::ReadWrite) == takes_effect);
            let launched = add_one(&stream, buffer.as_view_mut());
            assert_eq!(launched.is_ok(), open, "{launched:?}");
        }
        Ok(())
    });
}

/// The call that closes the pool returns an error of earlier work. Uses devices on which no other test leaves
/// a pool open, because the pool that memory belongs to is not known.
#[test]
fn a_pool_that_was_closed_with_an_error_is_closed() {
    clean(|session| {
        let (owner, peer) = (Device::get(3)?, Device::get(2)?);
        let stream = peer.create_stream()?;
        let pool = MemoryPool::builder(owner).build()?;
        let mut buffer = owner.create_stream()?.alloc_from::<u32>(&pool, 100)?;
        pool.set_access(peer, PeerAccess::ReadWrite)?;
        add_one(&stream, buffer.as_view_mut())?;
        let mut copy = stream.alloc::<u32>(100)?;
        let graph = Graph::capture(stream.context(), |captured| captured.copy(&buffer, &mut copy))?;
        let mut exec = graph.instantiate()?;
        stream.synchronize()?;
        for takes_effect in [false, true] {
            let call =
                Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemPoolSetAccess");
            session.inject(if takes_effect { call.takes_effect() } else { call });
            assert!(pool.set_access(peer, PeerAccess::None).is_err());
            let launched = add_one(&stream, buffer.as_view_mut());
            let again = exec.launch(&stream);
            match takes_effect {
                false => launched.and(again)?,
                true => {
                    assert!(matches!(launched, Err(Error::WrongDevice(_))), "{launched:?}");
                    assert!(matches!(again, Err(Error::Invalid(_))), "{again:?}");
                }
            }
        }
        stream.synchronize()
    });
}
