//! Captures by other code in CUDA's default mode, beside any operation of the library: S46.
//!
//! While a thread captures in global mode, CUDA forbids other threads to wait, query, allocate or
//! free, and invalidates the capture if one does, unless that thread's mode is relaxed.

use std::future::IntoFuture;

use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, Error, Event, EventFlags, MemoryPool,
    Module, PinnedBuffer, Registered, Result, Stream,
    image::{ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Texture, TextureDescriptor},
    managed::ManagedBuffer,
    pinned::RegisterFlags,
    pools::PoolReuse,
    virtual_memory::VirtualBuffer,
};
use cuda_sys::CU_LIMIT_STACK_SIZE;
use support::{block_on, gpu_test, one_stream};

use super::{assert_all, primary};
use crate::capture::{MODES, NON_BLOCKING, Neighbour, Theirs, refused, undisturbed};

const LEN: usize = 1 << 12;

const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k() { ret; }\n";

type Act = fn(&Context, &Stream) -> Result<()>;

fn event(context: &Context, stream: &Stream) -> Result<Event> {
    let event = Event::new(context, EventFlags::DISABLE_TIMING)?;
    event.record(stream)?;
    Ok(event)
}

fn memory(stream: &Stream, allocator: &Allocator) -> Result<()> {
    let mut buffer = stream.alloc_with::<u32>(allocator, LEN)?;
    stream.fill(&mut buffer, 1)?;
    drop(buffer);
    Ok(())
}

const WAITS: [(&str, Act); 11] = [
    ("Stream::synchronize", |_, stream| stream.synchronize()),
    ("Stream::query", |_, stream| stream.query().map(drop)),
    ("Event::synchronize", |context, stream| event(context, stream)?.synchronize()),
    ("Event::query", |context, stream| event(context, stream)?.query().map(drop)),
    ("Event::ready", |context, stream| block_on(event(context, stream)?.ready())),
    ("Event::elapsed_since", |_, stream| {
        let start = stream.record_event(EventFlags::DEFAULT)?;
        let end = stream.record_event(EventFlags::DEFAULT)?;
        stream.synchronize()?;
        end.elapsed_since(&start).map(drop)
    }),
    ("Stream::ready", |_, stream| block_on(stream.ready())),
    ("InFlight", |_, stream| {
        let mut buffer = stream.alloc::<u32>(LEN)?;
        let flight = stream.upload_owned(vec![1; LEN], &mut buffer)?;
        block_on(flight.into_future()).map(drop).map_err(Error::from)
    }),
    ("the drop of InFlight", |_, stream| {
        let mut buffer = stream.alloc::<u32>(LEN)?;
        drop(stream.upload_owned(vec![1; LEN], &mut buffer)?);
        cuda_core::drops::flush();
        Ok(())
    }),
    ("a buffer", |_, stream| {
        let mut buffer = stream.alloc::<u32>(LEN)?;
        stream.fill(&mut buffer, 1)?;
        buffer.synchronize()?;
        block_on(buffer.ready())
    }),
    ("borrowed slices", |_, stream| {
        let buffer = stream.upload_new(&vec![1_u32; 1 << 20])?;
        stream.download_vec(&buffer).map(drop)
    }),
];

const MEMORY: [(&str, Act); 9] = [
    ("a cache", |_, stream| {
        let pool = CachingPool::new();
        memory(stream, &pool.allocator())?;
        stream.synchronize()?;
        pool.trim(0).map(drop)
    }),
    ("the driver's pool", |_, stream| memory(stream, &Allocator::driver_pool())),
    ("plain memory", |_, stream| memory(stream, &Allocator::plain())),
    ("a pool", |context, stream| {
        let pool = MemoryPool::builder(context.device()).build()?;
        drop(stream.alloc_from::<u32>(&pool, LEN)?);
        pool.trim(0)?;
        Ok(pool.close()?)
    }),
    ("pinned memory", |context, stream| {
        let buffer = stream.alloc_zeroed::<u32>(LEN)?;
        let mut host = PinnedBuffer::new(context, LEN)?;
        stream.download(&buffer, &mut host)?;
        host.as_slice().map(drop)?;
        drop(host);
        cuda_core::staging::trim().map(drop)
    }),
    ("managed memory", |context, stream| {
        let mut buffer = ManagedBuffer::<u32>::new(context, LEN)?;
        stream.fill(&mut buffer, 1)?;
        Ok(buffer.close()?)
    }),
    ("registered memory", |context, stream| {
        let memory = Registered::new(context, vec![1_u32; LEN], RegisterFlags::default())?;
        let mut buffer = stream.alloc(LEN)?;
        stream.upload(&memory, &mut buffer)?;
        drop(memory);
        Ok(())
    }),
    ("virtual memory", |context, stream| {
        let mut buffer = VirtualBuffer::<u32>::new(context, 4 << 20)?;
        buffer.grow_to(LEN)?;
        stream.fill(&mut buffer, 1)?;
        drop(buffer);
        Ok(())
    }),
    ("an array", |context, _| {
        let shape = ArrayShape::D2 { width: 8, height: 4 };
        drop(CudaArray::<f32>::new(context, shape, ArrayFlags::default())?);
        Ok(())
    }),
];

const OTHERS: [(&str, Act); 8] = [
    ("a pool's attributes", |context, _| {
        let pool = context.device().default_memory_pool()?;
        pool.usage()?;
        pool.access(context.device())?;
        let reuse = pool.reuse(PoolReuse::Opportunistic)?;
        pool.set_reuse(PoolReuse::Opportunistic, reuse)
    }),
    ("settings of the context", |context, _| {
        let stack = context.limit(CU_LIMIT_STACK_SIZE)?;
        context.set_limit(CU_LIMIT_STACK_SIZE, stack)?;
        context.set_cache_config(context.cache_config()?)
    }),
    ("a texture", |context, _| {
        let shape = ArrayShape::D2 { width: 8, height: 4 };
        let array = CudaArray::<f32>::new(context, shape, ArrayFlags::default())?;
        drop(Texture::new(&array, &TextureDescriptor::default())?);
        let levels = MipmappedArray::<f32>::new(context, shape, 2, ArrayFlags::default())?;
        drop(levels);
        Ok(())
    }),
    ("streams and events", |context, _| {
        let stream = context.create_stream()?;
        event(context, &stream)?;
        Ok(stream.close()?)
    }),
    ("a context that is dropped", |context, _| {
        let created = Context::new(context.device(), ContextFlags::default())?;
        let stream = created.create_stream()?;
        let mut buffer = stream.alloc::<u32>(LEN)?;
        stream.fill(&mut buffer, 1)?;
        Ok(())
    }),
    ("a context that is closed", |context, _| {
        let created = Context::new(context.device(), ContextFlags::default())?;
        Ok(created.close()?)
    }),
    ("a module", |context, _| Module::from_ptx(context, PTX)?.close().map_err(Error::from)),
    ("host functions", |context, stream| {
        let buffer = context.alloc::<u32>(LEN)?;
        // Dropped on one of the library's threads.
        stream.launch_host_func(move || drop(buffer))?;
        stream.synchronize()?;
        cuda_core::drops::flush();
        Ok(())
    }),
];

gpu_test! {
    needs 1;
    fn s46_nothing_here_ends_the_capture_of_a_neighbour() -> Result<()> {
        let context = primary()?;
        let theirs = Theirs::create(&context, NON_BLOCKING);
        let acts = WAITS.into_iter().chain(MEMORY).chain(OTHERS);
        for (what, act) in acts {
            let stream = context.create_stream()?;
            for mode in MODES {
                let capture = Neighbour::begin(theirs.handle(), mode);
                let done = act(&context, &stream);
                undisturbed(capture, what);
                done.unwrap_or_else(|error| panic!("{what} beside {mode:?}: {error}"));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s46_nothing_here_ends_the_capture_of_its_own_thread() -> Result<()> {
        use crate::capture::Capture;

        let (context, captured) = one_stream()?;
        for (what, act) in WAITS.into_iter().chain(MEMORY).chain(OTHERS) {
            let stream = context.create_stream()?;
            for mode in MODES {
                let capture = Capture::begin(&captured, mode);
                let done = act(&context, &stream);
                assert_eq!(capture.end(), cuda_sys::CUDA_SUCCESS, "{what} in {mode:?}");
                done.unwrap_or_else(|error| panic!("{what} in {mode:?}: {error}"));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s46_a_context_is_not_waited_for_while_a_stream_of_it_is_captured() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let known = context.create_stream()?;
        let blocking = Theirs::create(&context, 0);
        for mode in MODES {
            for captured in [known.as_raw(), blocking.handle()] {
                let capture = Neighbour::begin(captured, mode);
                refused(context.synchronize(), "the context");
                refused(device.synchronize(), "the device");
                undisturbed(capture, "a wait for the context");
                device.synchronize()?;
            }
        }
        let stream = context.create_stream()?;
        let buffer = stream.upload_new(&[1; LEN])?;
        assert_all(&stream.download_vec(&buffer)?, 1);
        Ok(())
    }
}
