//! `close` whose releasing call fails: the library cannot know whether the call took effect. The returned
//! object is empty: it cannot be used, or released a second time.

mod memory;

use std::fmt::Debug;

use cuda_core::{
    Allocator, Context, ContextFlags, Device, Error, Event, EventFlags, MemoryPool, Module,
    Rejected, Resource, Result, Stream,
    image::{
        ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Surface, Texture, TextureDescriptor,
    },
};
use cuda_sim::{Fault, Mode};
use cuda_sys::CUDA_ERROR_LAUNCH_FAILED;
use support::{DropReports, judge};

use super::harness::first;
use super::stack;

type Closed<T> = std::result::Result<(), Rejected<T>>;

/// An owner and a `close` that fails in a driver call.
struct Case<T> {
    call: &'static str,
    make: fn() -> Result<T>,
    close: fn(T) -> Closed<T>,
    /// The resources that the drop hook reports.
    lost: &'static [Resource],
    /// Uses the returned object, which must fail.
    used: fn(&mut T),
}

impl<T> Case<T> {
    fn run(&self) {
        super::harness::prepare();
        for mode in [Mode::Lazy, Mode::Eager] {
            for takes_effect in [true, false] {
                self.attempt(mode, takes_effect);
            }
        }
    }

    fn attempt(&self, mode: Mode, takes_effect: bool) {
        let session = support::simulator_in(mode);
        let drops = DropReports::listen();
        let owner = (self.make)().expect("no fault yet");
        let fault = Fault::new(CUDA_ERROR_LAUNCH_FAILED).function(self.call);
        session.inject(if takes_effect { fault.takes_effect() } else { fault });
        let before = session.calls(self.call);
        let Err(Rejected { error, value: mut owner }) = (self.close)(owner) else {
            panic!("{} fails", self.call);
        };
        assert_eq!(error.code(), Some(CUDA_ERROR_LAUNCH_FAILED), "{error:?}");
        assert_eq!(session.calls(self.call), before + 1);
        (self.used)(&mut owner);
        let before = session.calls(self.call);
        // A second attempt, which a program may make.
        match (self.close)(owner) {
            Ok(()) => {}
            Err(Rejected { error, value: owner }) => {
                assert!(matches!(error, Error::GivenUp { .. }), "{error:?}");
                drop(owner);
            }
        }
        assert_eq!(session.calls(self.call), before, "{}", self.call);
        session.clear_faults();
        session.settle();
        let reported = drops.end();
        let lost = reported.failures.iter().map(|failure| failure.resource);
        assert_eq!(lost.collect::<Vec<_>>(), self.lost);
        assert_eq!(reported.counted, self.lost.len() as u64);
        assert_eq!(session.take_violations(), []);
        assert_eq!(stack::unwind(), [0; 0]);
        let leaks = session.leaks();
        if !takes_effect {
            let compared = judge::compare(&leaks, &reported, false, |_| false);
            compared.unwrap_or_else(|wrong| panic!("{}: {wrong}", self.call));
        }
        judge::take_away(&session, leaks);
    }
}

#[track_caller]
fn refused<R: Debug>(result: Result<R>) {
    assert!(matches!(result, Err(Error::GivenUp { .. })), "{result:?}");
}

fn stream() -> Stream {
    let (_, context) = first().expect("a device");
    context.create_stream().expect("a stream")
}

const SHAPE: ArrayShape = ArrayShape::D2 { width: 4, height: 2 };

#[test]
fn arrays() {
    Case {
        call: "cuArrayDestroy",
        make: || CudaArray::<u16>::new(&first()?.1, SHAPE, ArrayFlags::SURFACE_LOAD_STORE),
        close: CudaArray::close,
        lost: &[Resource::Array],
        used: |array| {
            assert!(array.as_raw().is_null());
            refused(array.descriptor());
            refused(Texture::new(&*array, &TextureDescriptor::default()));
            refused(Surface::new(array));
            let stream = stream();
            stream.upload_to_array(&[1; 8], &mut *array).expect_err("too long");
            stream.upload_to_array(&[], array).expect("none to write");
        },
    }
    .run();
    Case {
        call: "cuMipmappedArrayDestroy",
        make: || MipmappedArray::<u16>::new(&first()?.1, SHAPE, 2, ArrayFlags::default()),
        close: MipmappedArray::close,
        lost: &[Resource::Array],
        used: |array| {
            assert!(array.as_raw().is_null());
            array.level(0).expect_err("there are none");
            refused(Texture::new(&*array, &TextureDescriptor::default()));
        },
    }
    .run();
}

#[test]
fn textures_and_surfaces() {
    fn array() -> Result<CudaArray<u16>> {
        CudaArray::new(&first()?.1, SHAPE, ArrayFlags::SURFACE_LOAD_STORE)
    }
    Case {
        call: "cuTexObjectDestroy",
        make: || {
            let array = array()?;
            Ok((Texture::new(&array, &TextureDescriptor::default())?, array))
        },
        close: |(texture, array)| {
            let closed = texture.close();
            closed.map_err(|Rejected { error, value }| Rejected { error, value: (value, array) })
        },
        lost: &[Resource::Texture],
        used: |(texture, array)| {
            assert_eq!(texture.as_raw(), 0);
            refused(texture.descriptor());
            refused(texture.resource().map(|_| ()));
            refused(texture.bind(&*array));
        },
    }
    .run();
    Case {
        call: "cuSurfObjectDestroy",
        make: || {
            let array = array()?;
            Ok((Surface::new(&array)?, array))
        },
        close: |(surface, array)| {
            let closed = surface.close();
            closed.map_err(|Rejected { error, value }| Rejected { error, value: (value, array) })
        },
        lost: &[Resource::Surface],
        used: |(surface, array)| {
            assert_eq!(surface.as_raw(), 0);
            refused(surface.resource().map(|_| ()));
            refused(surface.bind_mut(array));
        },
    }
    .run();
}

#[test]
fn events() {
    Case {
        call: "cuEventDestroy_v2",
        make: || Event::new(&first()?.1, EventFlags::DEFAULT),
        close: Event::close,
        lost: &[Resource::Event],
        used: |event| {
            assert!(event.as_raw().is_null());
            let stream = stream();
            refused(event.record(&stream));
            refused(stream.wait_event(event));
            refused(event.synchronize());
            refused(event.query());
            refused(event.elapsed_since(event));
            refused(event.ipc_handle());
        },
    }
    .run();
}

#[test]
fn streams() {
    Case {
        call: "cuStreamDestroy_v2",
        make: || {
            let stream = stream();
            stream.fill(&mut stream.alloc::<u8>(8)?, 1)?;
            Ok(stream)
        },
        close: Stream::close,
        lost: &[Resource::Stream],
        used: |stream| {
            assert!(stream.as_raw().is_null());
            refused(stream.synchronize());
            refused(stream.query());
            refused(stream.checkpoint());
            refused(stream.alloc::<u8>(8));
            refused(stream.alloc_with::<u8>(&Allocator::driver_pool(), 8));
            refused(stream.launch_host_func(|| ()));
            let other = self::stream();
            refused(stream.wait_stream(&other));
            refused(other.wait_stream(stream));
            let mut buffer = other.alloc::<u8>(8).expect("memory");
            refused(stream.fill(&mut buffer, 1));
            refused(stream.upload(&[1; 8], &mut buffer));
            refused(stream.download(&buffer, &mut [1; 8]));
            let guard = stream.enter().expect("makes no driver call about the stream");
            let event = Event::new(stream.context(), EventFlags::DEFAULT).expect("an event");
            refused(event.record_current());
            drop(guard);
        },
    }
    .run();
}

#[test]
fn memory_pools() {
    Case {
        call: "cuMemPoolDestroy",
        make: || MemoryPool::builder(first()?.0).build(),
        close: MemoryPool::close,
        lost: &[Resource::MemoryPool],
        used: |pool| {
            assert!(pool.as_raw().is_null());
            refused(pool.usage());
            refused(pool.trim(0));
            refused(pool.set_release_threshold(0));
            refused(pool.access(pool.device()));
            refused(pool.device().set_memory_pool(pool));
            refused(stream().alloc_from::<u8>(pool, 8));
        },
    }
    .run();
}

/// Returns PTX with one entry and one variable.
fn ptx() -> &'static str {
    ".version 7.0\n.target sm_70\n.address_size 64\n\
     .visible .global .align 4 .u32 counter = 5;\n.visible .entry add_one() { ret; }\n"
}

#[test]
fn modules() {
    Case {
        call: "cuModuleUnload",
        make: || Module::from_ptx(&first()?.1, ptx()),
        close: Module::close,
        lost: &[Resource::Module],
        used: |module| {
            assert!(module.as_raw().is_null());
            refused(module.function("add_one"));
            refused(module.global::<u32>("counter"));
        },
    }
    .run();
}

#[test]
fn libraries() {
    Case {
        call: "cuLibraryUnload",
        make: || cuda_core::Library::from_ptx(ptx()),
        close: cuda_core::Library::close,
        lost: &[Resource::Module],
        used: |library| {
            assert!(library.as_raw().is_null());
            refused(library.kernel("add_one"));
            let (_, context) = first().expect("a context");
            refused(library.global::<u32>(&context, "counter"));
        },
    }
    .run();
}

#[test]
fn linkers() {
    Case {
        call: "cuLinkDestroy",
        make: || cuda_core::jit::Linker::new(&first()?.1),
        close: cuda_core::jit::Linker::close,
        lost: &[Resource::Linker],
        used: |linker| {
            assert!(linker.as_raw().is_null());
            refused(linker.add_ptx(ptx()).map(drop));
        },
    }
    .run();
}

#[test]
fn contexts() {
    let case = Case {
        call: "cuCtxDestroy_v2",
        make: || Context::new(Device::get(0)?, ContextFlags::default()),
        close: Context::close,
        lost: &[Resource::Context],
        used: |context| {
            assert!(context.as_raw().is_null());
            refused(context.enter());
            refused(context.set_current());
            refused(context.push());
            refused(context.synchronize());
            refused(context.create_stream());
            refused(context.api_version());
            refused(context.alloc::<u8>(8));
            let (_, other) = first().expect("a context");
            refused(other.enable_peer_access(context));
            let legacy = context.default_stream().expect("makes no driver call");
            refused(legacy.synchronize());
        },
    };
    case.run();
    Case {
        call: "cuGreenCtxDestroy",
        make: || {
            let split = Device::get(0)?.sm_resource()?.split(8, 1)?;
            Context::new_green(&[&split.groups[0]])
        },
        ..case
    }
    .run();
}

/// A context that is in use stays intact, and is destroyed once its users are gone.
#[test]
fn contexts_in_use() -> Result<()> {
    let session = support::simulator();
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let guard = context.enter()?;
    let in_use = |closed: Closed<Context>| {
        let Rejected { error, value: context } = closed.expect_err("it is in use");
        assert!(matches!(error, Error::ContextInUse), "{error:?}");
        context
    };
    let context = in_use(context.close());
    drop(guard);
    let stream = context.create_stream()?;
    let context = in_use(context.close());
    assert_eq!(session.calls("cuCtxDestroy_v2"), 0);
    let (clone, buffer) = (context.clone(), stream.alloc_zeroed::<u8>(8)?);
    let context = in_use(context.close());
    stream.close()?;
    let context = in_use(context.close());
    drop((clone, buffer));
    context.close()?;
    assert_eq!(session.calls("cuCtxDestroy_v2"), 1);
    let primary = Device::get(0)?.context()?;
    primary.clone().close()?;
    primary.synchronize()?;
    session.settle();
    assert_eq!(session.take_violations(), []);
    Ok(())
}
