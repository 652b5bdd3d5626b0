//! Streams captured by other code: S45.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, ptr};

use cuda_core::drops::{self, DropFailure};
use cuda_core::pinned::{RegisterFlags, StableHost};
use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, Error, Event, EventFlags, Library,
    Registered, Rejected, Result, Stream,
};
use cuda_sys::{
    CUDA_SUCCESS, CUresult, CUstream, CUstreamCaptureMode, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2,
    cuStreamBeginCapture_v2,
};
use support::{WatchedHost, block_on, check, gpu_test, kernels, one_stream};

use super::{assert_all, pinned, primary};
use crate::capture::{
    MODES, NON_BLOCKING, Neighbour, Theirs, end_capture, is_capturing, refused, undisturbed,
};
use crate::stack;

const LEN: usize = 1 << 16;

/// Returns a foreign stream, and a stream whose handle other code has.
fn exposed(context: &Context) -> Result<[Stream; 2]> {
    let theirs = Theirs::create(context, NON_BLOCKING).wrap(context)?;
    Ok([theirs, context.create_stream()?])
}

/// Returns allocators that free in different ways.
fn allocators() -> [Allocator; 3] {
    [Allocator::cache(), Allocator::driver_pool(), Allocator::plain()]
}

gpu_test! {
    needs 1;
    fn s45_memory_is_not_used_again_under_work_of_a_captured_stream() -> Result<()> {
        let context = primary()?;
        for allocator in allocators() {
            for mode in MODES {
                for theirs in exposed(&context)? {
                    let created = context.create_stream()?;
                    let what = format!("{allocator:?}, {mode:?}, {theirs:?}");
                    let mut buffer = created.alloc_with::<u32>(&allocator, LEN)?;
                    theirs.fill(&mut buffer, 0xdead)?;
                    let capture = Neighbour::begin(theirs.as_raw(), mode);
                    refused(created.fill(&mut buffer, 2), &what);
                    assert!(!is_capturing(created.as_raw()), "{what}: it joined");
                    drop(buffer);
                    let mut mine = created.alloc_with::<u32>(&allocator, LEN)?;
                    created.upload(&[7; LEN], &mut mine)?;
                    undisturbed(capture, &what);
                    theirs.synchronize()?;
                    assert_all(&created.download_vec(&mine)?, 7);
                    drop(mine);
                    cuda_core::drops::flush();
                }
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_a_captured_stream_is_left_alone_and_goes_on_afterwards() -> Result<()> {
        let context = primary()?;
        for mode in MODES {
            for theirs in exposed(&context)? {
                let created = context.create_stream()?;
                let mut buffer = created.alloc_zeroed::<u32>(LEN)?;
                let mut host = pinned(0u32, LEN)?;
                let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
                theirs.fill(&mut buffer, 1)?;
                let capture = Neighbour::begin(theirs.as_raw(), mode);
                refused(theirs.fill(&mut buffer, 2), "fill");
                refused(theirs.download(&buffer, &mut host), "download");
                refused(theirs.download_vec(&buffer), "download_vec");
                refused(theirs.upload(&[3; 8], buffer.slice_mut(..8)?), "upload");
                refused(theirs.alloc_with::<u32>(&Allocator::driver_pool(), 8), "alloc");
                refused(theirs.launch_host_func(|| ()), "launch_host_func");
                refused(theirs.synchronize(), "synchronize");
                refused(theirs.query(), "query");
                refused(theirs.checkpoint(), "checkpoint");
                refused(theirs.wait_stream(&created), "wait_stream");
                refused(event.record(&theirs), "record");
                refused(theirs.wait_event(&event), "wait_event");
                refused(block_on(theirs.ready()), "finished");
                // Operations that would have to wait for the captured stream.
                refused(created.download_vec(&buffer), "download_vec of another stream");
                refused(created.wait_stream(&theirs), "wait_stream of another stream");
                refused(buffer.synchronize(), "the host");
                refused(block_on(buffer.ready()), "a future");
                refused(context.synchronize(), "the context");
                // Operations that do not need the captured stream.
                assert!(!theirs.is_blocking()?);
                let mut other = created.alloc::<u32>(LEN)?;
                created.fill(&mut other, 5)?;
                assert_all(&created.download_vec(&other)?, 5);
                undisturbed(capture, &format!("{mode:?}, {theirs:?}"));

                assert_all(&created.download_vec(&buffer)?, 1);
                theirs.fill(&mut buffer, 2)?;
                created.download(&buffer, &mut host)?;
                assert_all(host.as_slice()?, 2);
                context.synchronize()?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_an_event_from_before_the_capture_is_waited_for() -> Result<()> {
        let context = primary()?;
        for theirs in exposed(&context)? {
            let created = context.create_stream()?;
            let mut buffer = created.alloc_zeroed::<u32>(LEN)?;
            theirs.fill(&mut buffer, 1)?;
            theirs.checkpoint()?;
            let capture = Neighbour::begin(theirs.as_raw(), MODES[0]);
            assert_all(&created.download_vec(&buffer)?, 1);
            created.fill(&mut buffer, 2)?;
            assert_all(&created.download_vec(&buffer)?, 2);
            undisturbed(capture, "a checkpoint before");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_a_stream_that_is_captured_is_not_taken_in() -> Result<()> {
        let context = primary()?;
        let theirs = Theirs::create(&context, NON_BLOCKING);
        let capture = Neighbour::begin(theirs.handle(), MODES[1]);
        refused(theirs.wrap(&context), "from_raw");
        undisturbed(capture, "from_raw");
        let stream = theirs.wrap(&context)?;
        stream.synchronize()
    }
}

/// A capture of this thread's default stream by other code, until this is dropped.
struct PerThread<'a>(&'a Context);

impl<'a> PerThread<'a> {
    #[track_caller]
    fn begin(context: &'a Context, mode: CUstreamCaptureMode) -> Self {
        stack::with(context.as_raw(), || {
            // SAFETY: the context of the stream is current.
            check("cuStreamBeginCapture", unsafe { cuStreamBeginCapture_v2(Self::stream(), mode) });
        });
        Self(context)
    }

    /// Returns `CU_STREAM_PER_THREAD`.
    fn stream() -> CUstream {
        ptr::without_provenance_mut(2)
    }

    fn end(self) -> CUresult {
        let code = stack::with(self.0.as_raw(), || end_capture(Self::stream()));
        mem::forget(self);
        code
    }
}

impl Drop for PerThread<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is live.
        let pushed = unsafe { cuCtxPushCurrent_v2(self.0.as_raw()) };
        end_capture(Self::stream());
        if pushed == CUDA_SUCCESS {
            let mut popped = ptr::null_mut();
            // SAFETY: the pointer is valid for a write.
            let _ = unsafe { cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

gpu_test! {
    needs 1;
    fn s45_the_per_thread_stream_is_captured_on_its_own_thread() -> Result<()> {
        let context = primary()?;
        for allocator in allocators() {
            for mode in MODES {
                let what = format!("{allocator:?}, {mode:?}");
                let created = context.create_stream()?;
                let stream = context.per_thread_stream()?;
                let alloc = || created.alloc_with::<u32>(&allocator, LEN);
                let (mut first, mut second) = (alloc()?, alloc()?);
                created.fill(&mut second, 0)?;
                stream.fill(&mut first, 0xdead)?;
                let capture = PerThread::begin(&context, mode);
                refused(stream.fill(&mut second, 2), &what);
                refused(stream.synchronize(), &what);
                refused(context.synchronize(), &what);
                // Each of its operations has its own event, so earlier work can be waited for.
                created.fill(&mut second, 3)?;
                drop(first);
                let mut mine = alloc()?;
                created.upload(&[7; LEN], &mut mine)?;
                assert_all(&created.download_vec(&mine)?, 7);
                assert_all(&created.download_vec(&second)?, 3);
                assert_eq!(capture.end(), CUDA_SUCCESS, "{what}");
                stream.fill(&mut second, 4)?;
                assert_all(&created.download_vec(&second)?, 4);
                assert_all(&created.download_vec(&mine)?, 7);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_the_legacy_stream_keeps_off_captures_of_blocking_streams() -> Result<()> {
        let context = primary()?;
        let theirs = Theirs::create(&context, 0);
        let (legacy, created) = (context.default_stream()?, context.create_stream()?);
        for mode in MODES {
            let what = format!("{mode:?}");
            let mut buffer = created.alloc_zeroed::<u32>(LEN)?;
            legacy.fill(&mut buffer, 1)?;
            let capture = Neighbour::begin(theirs.handle(), mode);
            refused(legacy.fill(&mut buffer, 2), &what);
            refused(legacy.synchronize(), &what);
            refused(legacy.query(), &what);
            refused(context.synchronize(), &what);
            // The library would record an event late on the legacy stream.
            refused(created.fill(&mut buffer, 3), &what);
            undisturbed(capture, &what);
            assert_all(&created.download_vec(&buffer)?, 1);
        }
        Ok(())
    }
}

/// Wraps elements so that their drops are counted.
fn counts_drops(elements: Vec<u32>, drops: Arc<AtomicU32>) -> impl StableHost<Element = u32> {
    WatchedHost::new(elements, move |_| _ = drops.fetch_add(1, Ordering::SeqCst))
}

gpu_test! {
    needs 1;
    fn s45_owners_and_memory_go_when_the_capture_has_ended() -> Result<()> {
        let context = primary()?;
        let (gone, lost) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = lost.clone();
        drops::set_hook(move |_: &DropFailure| _ = count.fetch_add(1, Ordering::SeqCst));
        for theirs in exposed(&context)? {
            let before = gone.load(Ordering::SeqCst);
            let mut buffer = context.create_stream()?.alloc::<u32>(LEN)?;
            let owner = counts_drops(vec![1; LEN], gone.clone());
            let flight = theirs.upload_owned(owner, &mut buffer);
            let flight = flight?;
            let mut plain = context.alloc::<u32>(LEN)?;
            theirs.fill(&mut plain, 1)?;
            let owner = counts_drops(vec![2; LEN], gone.clone());
            let registered = Registered::new(&context, owner, RegisterFlags::PORTABLE);
            let registered = registered.map_err(Error::from)?;
            theirs.upload(&registered, &mut plain)?;
            let pool = CachingPool::new();
            let mut pooled = theirs.alloc_with::<u32>(&pool.allocator(), LEN)?;
            theirs.fill(&mut pooled, 1)?;
            drop(pooled);
            let capture = Neighbour::begin(theirs.as_raw(), MODES[0]);
            drop((flight, plain, registered, buffer, pool));
            cuda_core::drops::flush();
            assert_eq!(gone.load(Ordering::SeqCst), before, "under its copy");
            undisturbed(capture, "drops");
            cuda_core::drops::flush();
            assert_eq!(gone.load(Ordering::SeqCst), before + 2);
        }
        // No resource was lost.
        drops::take_hook();
        assert_eq!(lost.load(Ordering::SeqCst), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_a_stream_whose_close_was_refused_gives_its_free_memory_back() -> Result<()> {
        let (context, created) = one_stream()?;
        let mut buffer = created.alloc_zeroed::<u32>(LEN)?;
        let theirs = Theirs::create(&context, NON_BLOCKING);
        let stream = theirs.wrap(&context)?;
        let pool = CachingPool::new();
        drop(stream.alloc_with::<u32>(&pool.allocator(), LEN)?);
        stream.fill(&mut buffer, 1)?;
        let capture = Neighbour::begin(theirs.handle(), MODES[0]);
        let Rejected { error: why, value: stream } = stream.close().expect_err("the buffer waits for it");
        refused::<()>(Err(why), "close");
        undisturbed(capture, "close");
        drop(stream.alloc_with::<u32>(&pool.allocator(), LEN)?);
        stream.synchronize()?;
        let reserved = pool.usage(context.device()).reserved;
        assert_ne!(reserved, 0);
        assert_eq!(pool.trim(0)?, reserved);
        Ok(())
    }
}

// A library belongs to no context; any context may have launched its kernels.
gpu_test! {
    needs 1, cuda_12_0;
    fn s45_a_library_whose_close_was_refused_keeps_no_context() -> Result<()> {
        let launch = |library: &Library, stream: &Stream| {
            // SAFETY: the kernel has no parameter and touches nothing.
            unsafe { stream.kernel(&library.kernel("nothing")?).block(1).launch() }
        };
        kernels::register();
        let (_context, stream) = one_stream()?;
        let mut library = Library::from_ptx(kernels::PTX)?;
        launch(&library, &stream)?;
        let capture = Neighbour::begin(stream.as_raw(), MODES[0]);
        let Rejected { error: why, value } = library.close().expect_err("its kernel may run");
        refused::<()>(Err(why), "close");
        undisturbed(capture, "close");
        library = value;
        let other = Context::new(Device::get(0)?, ContextFlags::default())?;
        launch(&library, &other.create_stream()?)?;
        other.synchronize()?;
        drops::flush();
        other.close()?;
        library.close().map_err(Error::from)
    }
}

gpu_test! {
    needs 1;
    fn s45_a_stream_that_goes_while_it_is_captured() -> Result<()> {
        let (context, created) = one_stream()?;
        let mut buffer = created.alloc_zeroed::<u32>(LEN)?;
        let theirs = Theirs::create(&context, NON_BLOCKING);
        let stream = theirs.wrap(&context)?;
        stream.fill(&mut buffer, 1)?;
        let capture = Neighbour::begin(theirs.handle(), MODES[0]);
        // The stream is kept: the end of its work could not be known otherwise.
        let Rejected { error: why, value: stream } = stream.close().expect_err("the buffer waits for it");
        refused::<()>(Err(why), "close");
        drop(stream);
        cuda_core::drops::flush();
        assert_eq!(Arc::strong_count(&theirs), 2, "it is kept");
        refused(created.fill(&mut buffer, 2), "the buffer");
        undisturbed(capture, "the last handle");
        created.fill(&mut buffer, 3)?;
        assert_all(&created.download_vec(&buffer)?, 3);
        cuda_core::drops::flush();
        assert_eq!(Arc::strong_count(&theirs), 1, "no reference is left");
        Ok(())
    }
}
