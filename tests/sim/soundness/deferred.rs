//! S31: deferred drops that wait. No drop waits for those before it.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use cuda_core::{
    Allocator, Context, DeviceAllocator, DeviceBuffer, Event, EventFlags, Graph, Library,
    PinnedBuffer, Registered, Result, Signal, Stream, WaitValue, drops, pinned::RegisterFlags,
};
use cuda_sim::Mode;
use cuda_sys::{cuStreamCreate, cuStreamDestroy_v2};

use super::{clean, device, primary};

const PTX: &str =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

/// When dropped, waits for the other end to be dropped.
struct Waits(Mutex<mpsc::Receiver<()>>);

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.0.get_mut().map(|other| other.recv());
    }
}

/// Drops what `used` returns in a host function while a stream works on it, or on other objects of its
/// device. That stream continues when a host function's next drop has run.
fn goes_by<T: Send + 'static>(used: impl FnOnce(&Stream) -> Result<T> + Send) {
    clean(|session| {
        session.set_mode(Mode::Eager);
        let [using, dropping] = [device().create_stream()?, device().create_stream()?];
        let (kept, gone) = mpsc::channel::<()>();
        let next =
            Graph::capture(&primary(), |stream| stream.launch_host_func_each(move || _ = &kept))?;
        let go = Signal::new(&primary(), 0u32)?;
        using.wait_signal(&go, WaitValue::Geq(1))?;
        using.launch_host_func(move || _ = gone.recv())?;
        let used = used(&using)?;
        dropping.launch_host_func(move || drop((used, next)))?;
        dropping.synchronize()?;
        go.set(1);
        using.synchronize()
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_those_before_it() {
    goes_by(|using| {
        let mut buffer = primary().alloc::<u32>(64)?;
        using.fill(&mut buffer, 1).map(|()| buffer)
    });
    goes_by(|_| primary().alloc::<u32>(64));
    goes_by(|using| {
        let mut buffer = using.alloc_with::<u32>(&Allocator::plain(), 64)?;
        device().create_stream()?.fill(&mut buffer, 1).map(|()| buffer)
    });
    goes_by(|_| PinnedBuffer::<u32>::write_combined(&primary(), 64));
    goes_by(|_| Ok(Registered::new(&primary(), vec![1; 64], RegisterFlags::PORTABLE)?));
    goes_by(|_| {
        let library = Library::from_ptx(PTX)?;
        library.kernel("nothing")?.function(&primary())?;
        Ok(library)
    });
}

/// A deferred drop runs code of the program, `Waits` or what `owns` makes of it, that waits for the next
/// dropped value.
fn waits_for_the_next<T: Send + 'static>(owns: impl FnOnce(&Stream, Waits) -> Result<T> + Send) {
    clean(|_| {
        let stream = device().create_stream()?;
        let (kept, gone) = mpsc::channel::<()>();
        let next =
            Graph::capture(&primary(), |stream| stream.launch_host_func_each(move || _ = &kept))?;
        let first = owns(&stream, Waits(Mutex::new(gone)))?;
        stream.launch_host_func(move || drop((first, next)))?;
        stream.synchronize()?;
        drops::flush();
        Ok(())
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_what_a_graph_kept() {
    waits_for_the_next(|_, waits| {
        Graph::capture(&primary(), |stream| stream.launch_host_func_each(move || _ = &waits))
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_an_owner_of_memory() {
    waits_for_the_next(|stream, waits| {
        let memory = stream.alloc::<u32>(16)?;
        let (address, owner) = (memory.as_raw(), (memory, waits));
        // SAFETY: the memory is its own owner, and no other code uses it.
        Ok(unsafe { DeviceBuffer::<u32>::from_raw(address, 16, &primary(), owner) }?)
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_an_owner_of_a_stream_or_an_event() {
    struct Theirs(usize);
    impl Drop for Theirs {
        fn drop(&mut self) {
            let raw = ptr::without_provenance_mut(self.0);
            // SAFETY: the stream was created by `cuStreamCreate`, and is destroyed once.
            support::check("cuStreamDestroy", unsafe { cuStreamDestroy_v2(raw) });
        }
    }
    waits_for_the_next(|_, waits| {
        let mut raw = ptr::null_mut();
        let context = primary();
        let create = |_: &Context| {
            // SAFETY: the call writes one handle, to a local that outlives it.
            support::check("cuStreamCreate", unsafe { cuStreamCreate(&mut raw, 0) });
            Ok(())
        };
        context.with(create)?;
        let owner = (Theirs(raw.addr()), waits);
        // SAFETY: the owner destroys the stream.
        Ok(unsafe { Stream::from_raw(raw, &context, owner) }?)
    });
    waits_for_the_next(|stream, waits| {
        let flags = EventFlags::DISABLE_TIMING;
        let theirs = stream.record_event(flags)?;
        // SAFETY: the owner keeps the event alive.
        Ok(unsafe { Event::from_raw(theirs.as_raw(), flags, &primary(), (theirs, waits)) }?)
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_an_owner_of_a_context() {
    waits_for_the_next(|_, waits| {
        let foreign = support::context::Foreign::create(0);
        // SAFETY: the context lives as long as the owner.
        Ok(unsafe { Context::from_raw(foreign.handle(), (foreign, waits)) }?)
    });
}

#[test]
fn s31_a_deferred_drop_does_not_wait_for_an_allocator() {
    struct Slow(Waits);
    // SAFETY: the driver's pool fulfils the contract.
    unsafe impl DeviceAllocator for Slow {
        fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
            Allocator::driver_pool().allocate(stream, bytes)
        }

        unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
            let _ = self.0.0.lock().expect("no panic").recv();
            // SAFETY: the pool allocated it, and the caller no longer uses it.
            unsafe { Allocator::driver_pool().deallocate(stream, address, bytes) }
        }
    }
    waits_for_the_next(|stream, waits| stream.alloc_with::<u32>(&Allocator::new(Slow(waits)), 64));
}

/// What a graph uses is dropped once the graph is gone, and its launch complete.
#[test]
fn s31_a_deferred_drop_does_not_wait_for_what_a_graph_used() {
    for allocator in [None, Some(Allocator::plain())] {
        goes_by(|using| {
            let mut buffer = match allocator {
                None => primary().alloc::<u32>(64)?,
                Some(allocator) => using.alloc_with(&allocator, 64)?,
            };
            let graph = Graph::capture(&primary(), |stream| stream.fill(&mut buffer, 1))?;
            graph.instantiate()?.launch(using)?;
            drop((graph, buffer));
            Ok(())
        });
    }
}

/// More drops wait than there may be threads: another one begins whenever one completes.
#[test]
#[cfg_attr(miri, ignore = "65 threads take an interpreter minutes")]
fn s31_many_deferred_drops_wait() {
    const MOST: usize = 64;
    const ALL: usize = MOST + 8;
    struct Counted {
        begun: Arc<AtomicUsize>,
        _waits: Waits,
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.begun.fetch_add(1, Ordering::AcqRel);
        }
    }
    clean(|_| {
        let stream = device().create_stream()?;
        let begun = Arc::new(AtomicUsize::new(0));
        let (mut graphs, mut awaited) = (Vec::new(), Vec::new());
        for _ in 0..ALL {
            let (kept, gone) = mpsc::channel::<()>();
            let waits = Counted { begun: begun.clone(), _waits: Waits(Mutex::new(gone)) };
            let capture = |stream: &Stream| stream.launch_host_func_each(move || _ = &waits);
            graphs.push(Graph::capture(&primary(), capture)?);
            awaited.push(kept);
        }
        stream.launch_host_func(move || drop(graphs))?;
        stream.synchronize()?;
        while begun.load(Ordering::Acquire) < MOST {
            std::thread::yield_now();
        }
        for (ended, kept) in awaited.into_iter().enumerate() {
            drop(kept);
            while begun.load(Ordering::Acquire) < ALL.min(MOST + 1 + ended) {
                std::thread::yield_now();
            }
        }
        drops::flush();
        Ok(())
    });
}
