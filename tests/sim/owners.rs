//! M15 for each owner: the driver refuses every call that releases it, and its drop reports that.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, DeviceBuffer, Error, Event, EventFlags,
    MemoryPool, Module, PinnedBuffer, Registered, Resource, Result, Stream,
    drops::DropFailure,
    image::{
        ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Surface, Texture, TextureDescriptor,
    },
    interop::{IpcMemoryHandle, ShareableHandle},
    managed::ManagedBuffer,
    pinned::RegisterFlags,
    virtual_memory::{PhysicalMemory, VirtualBuffer},
};
use cuda_sim::{Fault, Leak, LeakKind, Session};
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::{DropReports, Reported, judge, simulator};

/// The calls that release something.
const FREES: [&str; 20] = [
    "cuArrayDestroy",
    "cuCtxDestroy_v2",
    "cuEventDestroy_v2",
    "cuGreenCtxDestroy",
    "cuIpcCloseMemHandle",
    "cuLibraryUnload",
    "cuMemAddressFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostUnregister",
    "cuMemPoolDestroy",
    "cuMemRelease",
    "cuMemUnmap",
    "cuMipmappedArrayDestroy",
    "cuModuleUnload",
    "cuProfilerStop",
    "cuStreamDestroy_v2",
    "cuSurfObjectDestroy",
    "cuTexObjectDestroy",
];

/// Drops each value that `make` returns, both normally and while a panic unwinds, and asserts that the hook
/// reports exactly these resources.
#[track_caller]
fn refused<T: Any>(resources: &[Resource], make: impl Fn(&Stream) -> Result<T>) {
    let session = simulator();
    let stream = Device::get(0).and_then(Device::create_stream).expect("no fault yet");
    for unwinds in [false, true] {
        let mut reports = DropReports::listen();
        let owner = make(&stream).expect("no fault yet");
        stream.synchronize().expect("no fault yet");
        let refuse = |name| Fault::new(CUDA_ERROR_UNKNOWN).function(name);
        for name in FREES {
            session.inject(refuse(name).from_then_on());
        }
        if unwinds {
            let panicked = catch_unwind(AssertUnwindSafe(move || {
                let _owner = owner;
                std::panic::panic_any("the payload");
            }));
            let payload = panicked.expect_err("the panic goes on");
            assert_eq!(payload.downcast_ref(), Some(&"the payload"));
        } else {
            drop(owner);
        }
        cuda_core::drops::flush();
        session.clear_faults();
        let failures = reports.take();
        let lost: Vec<_> = failures.iter().map(|failure| failure.resource).collect();
        assert_eq!(lost, resources);
        leaves(&session, &stream, failures);
    }
    drop(stream);
    assert_eq!(session.leaks(), []);
}

/// Asserts that the remaining objects, except the stream, are those that were reported, and releases them.
#[track_caller]
fn leaves(session: &Session, stream: &Stream, failures: Vec<DropFailure>) {
    for failure in &failures {
        let code = failure.error.as_ref().and_then(|error| error.code());
        assert_eq!(code, Some(CUDA_ERROR_UNKNOWN), "{failure:?}");
    }
    session.settle();
    assert_eq!(session.violations(), []);
    let mut leaks = session.leaks();
    leaks.retain(|leak| leak.handle != stream.as_raw().addr() as u64);
    // A stream's own events are destroyed with it.
    let is_reported = |leak: &Leak| failures.iter().any(|report| report.handle == leak.handle);
    leaks.retain(|leak| leak.kind != LeakKind::Event || is_reported(leak));
    let reported = Reported { counted: failures.len() as u64, failures };
    let compared = judge::compare(&leaks, &reported, false, |_| false);
    compared.unwrap_or_else(|wrong| panic!("{wrong}"));
    judge::take_away(session, leaks);
}

const SHAPE: ArrayShape = ArrayShape::D2 { width: 4, height: 2 };

fn array(stream: &Stream) -> Result<CudaArray<u16>> {
    CudaArray::new(stream.context(), SHAPE, ArrayFlags::SURFACE_LOAD_STORE)
}

#[test]
fn m15_device_memory() {
    let memory = Resource::DeviceMemory;
    refused(&[memory], |stream| stream.context().alloc::<u8>(100));
    for allocator in [Allocator::plain(), Allocator::driver_pool()] {
        refused(&[memory], |stream| stream.alloc_with::<u8>(&allocator, 100));
    }
    refused(&[memory], |stream| stream.context().alloc_pitched::<u8>(16, 4));
    refused(&[memory], |stream| ManagedBuffer::<u8>::new(stream.context(), 100));
    refused(&[memory], |stream| {
        let handle = IpcMemoryHandle::from_bytes(cuda_sim::foreign_memory(64));
        // SAFETY: no other process exists that could use the memory.
        unsafe { DeviceBuffer::<u8>::open_ipc(stream.context(), handle, 64) }
    });
}

#[test]
fn m15_virtual_memory() {
    refused(&[Resource::PhysicalMemory, Resource::DeviceMemory], |stream| {
        let mut list = VirtualBuffer::<u32>::new(stream.context(), 1 << 20)?;
        list.grow_to(100)?;
        Ok(list)
    });
    refused(&[Resource::PhysicalMemory], |stream| {
        PhysicalMemory::new(stream.context(), 1, ShareableHandle::None)
    });
}

#[test]
fn m15_pools() {
    refused(&[Resource::MemoryPool], |stream| MemoryPool::builder(stream.device()).build());
    refused(&[Resource::DeviceMemory], |stream| {
        let pool = CachingPool::new();
        drop(stream.alloc_with::<u8>(&pool.allocator(), 100)?);
        Ok(pool)
    });
}

#[test]
fn m15_pinned_memory() {
    refused(&[Resource::PinnedMemory], |stream| {
        PinnedBuffer::<u8>::write_combined(stream.context(), 100)
    });
    refused(&[Resource::PinnedMemory], |stream| {
        let host = vec![5_u32; 16];
        let registered = Registered::new(stream.context(), host, RegisterFlags::PORTABLE);
        registered.map_err(Error::from)
    });
}

#[test]
fn m15_arrays() {
    refused(&[Resource::Array], array);
    refused(&[Resource::Array], |stream| {
        MipmappedArray::<u16>::new(stream.context(), SHAPE, 2, ArrayFlags::default())
    });
    // The texture holds the last reference to its array.
    refused(&[Resource::Texture, Resource::Array], |stream| {
        Texture::new(&array(stream)?, &TextureDescriptor::default())
    });
    refused(&[Resource::Surface, Resource::Array], |stream| Surface::new(&array(stream)?));
}

const PTX: &str =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

#[test]
fn m15_code() {
    refused(&[Resource::Module], |stream| Module::from_ptx(stream.context(), PTX));
    refused(&[Resource::Module], |stream| {
        Module::from_ptx(stream.context(), PTX)?.function("nothing")
    });
    refused(&[Resource::Module], |_| cuda_core::Library::from_ptx(PTX));
}

#[test]
fn m15_streams_and_contexts() {
    refused(&[Resource::Event], |stream| Event::new(stream.context(), EventFlags::DEFAULT));
    refused(&[Resource::Stream], |stream| stream.context().create_stream());
    let create = |stream: &Stream| Context::new(stream.device(), ContextFlags::default());
    refused(&[Resource::Context], create);
    refused(&[Resource::Context], |stream| {
        let split = stream.device().sm_resource()?.split(8, 1)?;
        Context::new_green(&[&split.groups[0]])
    });
}

#[test]
fn m15_profiler() {
    refused(&[Resource::ProfilerRange], |stream| stream.context().profile());
}
