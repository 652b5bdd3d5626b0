//! S51: memory of a created context that could not be proven idle.

use std::any::Any;

use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, PinnedBuffer, Registered, Resource,
    Result, Stream,
    adaptors::Statistics,
    image::{ArrayFlags, ArrayShape, CudaArray},
    managed::ManagedBuffer,
    pinned::RegisterFlags,
};
use cuda_sim::{Fault, LeakKind, Mode};
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::{DropReports, judge};

use super::{device, primary, within};

const LEN: usize = 1024;

/// Any owners of a context's memory.
type Owners = Box<dyn Any>;

/// [`kept_by`] while all waits fail.
fn kept(what: Resource, share: impl Fn(&Context, &Stream) -> Result<Owners> + Sync) {
    kept_by(&["cuEventSynchronize", "cuStreamWaitEvent"], what, share);
}

/// Drops memory of a created context that a stream of another context uses, as `share` sets it up, while
/// these calls fail; then drops the last reference to the context. Asserts that both are kept and reported.
fn kept_by(
    fails: &[&'static str],
    what: Resource,
    share: impl Fn(&Context, &Stream) -> Result<Owners> + Sync,
) {
    let session = support::simulator_in(Mode::Lazy);
    // Queries never report completion.
    session.set_polls(u32::MAX);
    let failures = DropReports::listen();
    within(|| {
        let run = || {
            let far = primary().create_stream()?;
            let context = Context::new(device(), ContextFlags::default())?;
            let owners = share(&context, &far)?;
            for &call in fails {
                session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function(call).from_then_on());
            }
            drop(owners);
            drop(context);
            cuda_core::drops::flush();
            session.clear_faults();
            assert_eq!(session.calls("cuCtxDestroy_v2"), 0);
            far.synchronize()
        };
        run().expect("no operation of the test fails");
    });
    let reported = failures.end();
    let of = |what| reported.failures.iter().filter(move |failure| failure.resource == what);
    assert!(of(what).count() > 0, "{reported:?}");
    assert_eq!(of(Resource::Context).count(), 1, "{reported:?}");
    session.settle();
    cuda_core::staging::trim().expect("idle chunks can be freed");
    assert_eq!(session.violations(), []);
    let leaks = session.leaks();
    assert!(leaks.iter().any(|leak| leak.kind == LeakKind::Context));
    judge::compare(&leaks, &reported, false, |_| false).expect("what stays is what was reported");
    judge::take_away(&session, leaks);
    // Waits for all contexts of both devices that the library knows, but not for the destroyed one.
    let other = Device::get(1).and_then(Device::context).expect("four devices");
    other.enable_peer_access(&primary()).expect("without a fault");
    other.disable_peer_access(&primary()).expect("the destroyed context is forgotten");
}

#[test]
fn s51_memory_of_the_context() {
    kept(Resource::DeviceMemory, |context, far| {
        let mut buffers = [context.alloc::<u32>(LEN)?, context.alloc::<u32>(LEN)?];
        for buffer in &mut buffers {
            far.fill(buffer, 7)?;
        }
        Ok(Box::new(buffers))
    });
}

#[test]
fn s51_managed_memory() {
    kept(Resource::DeviceMemory, |context, far| {
        let mut buffer = ManagedBuffer::<u32>::new(context, LEN)?;
        far.fill(&mut buffer, 7)?;
        Ok(Box::new(buffer))
    });
}

#[test]
fn s51_pinned_memory() {
    kept(Resource::PinnedMemory, |context, far| {
        let mut host = PinnedBuffer::<u32>::write_combined(context, LEN)?;
        let buffer = far.alloc_zeroed::<u32>(LEN)?;
        far.download(&buffer, &mut host)?;
        far.checkpoint()?;
        Ok(Box::new(host))
    });
}

#[test]
fn s51_registered_memory() {
    kept(Resource::PinnedMemory, |context, far| {
        let host = Registered::new(context, vec![1_u32; LEN], RegisterFlags::PORTABLE);
        let host = host?;
        let mut buffer = far.alloc::<u32>(LEN)?;
        far.upload(&host, &mut buffer)?;
        Ok(Box::new(host))
    });
}

#[test]
fn s51_arrays() {
    kept(Resource::Array, |context, far| {
        let shape = ArrayShape::D1 { width: LEN };
        let mut array = CudaArray::<u32>::new(context, shape, ArrayFlags::default())?;
        far.upload_to_array(&[7; LEN], &mut array)?;
        Ok(Box::new(array))
    });
}

#[test]
fn s51_memory_of_allocators() {
    let allocators: [fn() -> Allocator; 3] = [
        Allocator::plain,
        Allocator::cache,
        // The allocator's pool is dropped, too.
        || CachingPool::new().allocator(),
    ];
    for allocator in allocators {
        kept(Resource::DeviceMemory, |context, far| {
            let (home, allocator) = (context.create_stream()?, allocator());
            let mut buffer = home.alloc_with::<u32>(&allocator, LEN)?;
            home.synchronize()?;
            far.fill(&mut buffer, 7)?;
            Ok(Box::new((buffer, home, allocator)))
        });
    }
}

/// The home stream waits for the far one, but nothing proves to the host that either has ended.
#[test]
fn s51_memory_for_which_only_its_home_stream_has_waited() {
    let allocators: [fn() -> Allocator; 2] =
        [Allocator::plain, || Allocator::new(Statistics::new(Allocator::plain()))];
    for allocator in allocators {
        kept_by(&["cuEventSynchronize"], Resource::DeviceMemory, |context, far| {
            let (home, allocator) = (context.create_stream()?, allocator());
            let mut buffer = home.alloc_with::<u32>(&allocator, LEN)?;
            home.synchronize()?;
            far.fill(&mut buffer, 7)?;
            Ok(Box::new((buffer, home)))
        });
    }
}
