//! Streams created by other code.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, PinnedBuffer, Result, Stream};
use support::{assert_bytes, gpu_test, one_stream, refusal, stall};

use crate::capture::{NON_BLOCKING, Theirs};
use crate::stack;

/// A stream created by a raw call. It is destroyed, and counted, with its last reference.
pub(crate) struct Raw {
    pub(crate) stream: Arc<Theirs>,
    destroyed: Arc<AtomicU32>,
}

impl Raw {
    pub(crate) fn create(context: &Context, destroyed: &Arc<AtomicU32>) -> Arc<Self> {
        let stream = Theirs::create(context, NON_BLOCKING);
        Arc::new(Self { stream, destroyed: destroyed.clone() })
    }

    pub(crate) fn wrap(self: &Arc<Self>, context: &Context) -> Result<Stream> {
        // SAFETY: the stream lives as long as this value does.
        Ok(unsafe { Stream::from_raw(self.stream.handle(), context, self.clone()) }?)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.destroyed.fetch_add(1, Ordering::SeqCst);
    }
}

gpu_test! {
    needs 1;
    fn c22_external_owner_alive() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let destroyed = Arc::new(AtomicU32::new(0));
        let gone = || destroyed.load(Ordering::SeqCst);
        let raw = Raw::create(&context, &destroyed);
        let stream = raw.wrap(&context)?;
        let again = raw.wrap(&context)?;
        assert_eq!(stream, again, "one timeline");
        assert_eq!(stream.id(), again.id());
        assert_eq!(stream.as_raw(), raw.stream.handle());
        assert_ne!(stream, context.create_stream()?);
        assert_eq!(Arc::strong_count(&raw), 2, "one owner is enough");
        drop(raw);
        assert_eq!(gone(), 0);

        let mut buffer = stream.alloc::<u8>(1000)?;
        stream.fill(&mut buffer, 22)?;
        drop(stream);
        let mut back = [0; 1000];
        again.download(&buffer, &mut back)?;
        assert_bytes(&back, &[22; 1000]);
        again.close()?;
        assert_eq!(gone(), 0, "the stream is the buffer's home");
        drop(buffer);
        assert_eq!(gone(), 1, "destroyed by its owner, once");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c22_a_stream_of_the_library_is_known_by_its_handle() -> Result<()> {
        let (context, stream) = one_stream()?;
        // SAFETY: the owner is a handle of the stream.
        let same = unsafe { Stream::from_raw(stream.as_raw(), &context, Arc::new(stream.clone())) }?;
        assert_eq!(same, stream);
        drop(stream);
        same.synchronize()?;
        Ok(same.close()?)
    }
}

gpu_test! {
    needs 1;
    fn c22_handles_of_default_streams() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let wrap = |handle: usize| {
            // SAFETY: a default stream lives as long as its context.
            unsafe { Stream::from_raw(ptr::without_provenance_mut(handle), &context, ()) }
        };
        assert_eq!(wrap(0)?, context.default_stream()?);
        assert_eq!(wrap(1)?, context.default_stream()?);
        assert!(refusal(wrap(2)).contains("per_thread_stream"));
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn c22_a_stream_of_another_context_is_refused() -> Result<()> {
        let destroyed = Arc::new(AtomicU32::new(0));
        let device = Device::get(0)?;
        let created = Context::new(device, ContextFlags::default())?;
        let contexts = [device.context()?, Device::get(1)?.context()?, created];
        for mine in &contexts {
            let raw = Raw::create(mine, &destroyed);
            for theirs in contexts.iter().filter(|theirs| *theirs != mine) {
                assert!(refusal(raw.wrap(theirs)).contains("another context"));
            }
            assert_eq!(Arc::strong_count(&raw), 1, "a refused stream's owner is dropped");
            assert_eq!(raw.wrap(mine)?.context(), mine);
        }
        assert_eq!(destroyed.load(Ordering::SeqCst), 3);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c22_foreign_streams_are_ordered_like_created_ones() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let destroyed = Arc::new(AtomicU32::new(0));
        let raw = Raw::create(&context, &destroyed);
        let (foreign, created) = (raw.wrap(&context)?, context.create_stream()?);
        drop(raw);
        let mut buffer = created.alloc::<u8>(1000)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        // Makes the calls beforehand that would wait after the stall.
        foreign.fill(&mut buffer, 1)?;
        created.download(&buffer, &mut host)?;
        created.synchronize()?;

        let stall = stall(foreign.as_raw());
        foreign.fill(&mut buffer, 2)?;
        created.download(&buffer, &mut host)?;
        assert!(!created.query()?, "it waits for the foreign stream");
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        event.record(&foreign)?;
        drop(foreign);
        assert_eq!(destroyed.load(Ordering::SeqCst), 1, "with work pending");
        stall.release();
        assert_bytes(host.as_slice()?, &[2; 1000]);
        event.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn s02_work_of_a_foreign_stream_that_is_gone() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let destroyed = Arc::new(AtomicU32::new(0));
        let home = context.create_stream()?;
        let mut buffer = home.alloc_zeroed::<u8>(1000)?;
        let foreign = Raw::create(&context, &destroyed).wrap(&context)?;
        foreign.fill(&mut buffer, 2)?;
        drop(foreign);
        assert_eq!(destroyed.load(Ordering::SeqCst), 1);
        let mut back = [0; 1000];
        home.download(&buffer, &mut back)?;
        assert_bytes(&back, &[2; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s08_a_foreign_stream_dropped_in_a_host_function() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let destroyed = Arc::new(AtomicU32::new(0));
        let stream = Raw::create(&context, &destroyed).wrap(&context)?;
        let other = context.create_stream()?;
        other.launch_host_func(move || drop(stream))?;
        other.synchronize()?;
        cuda_core::drops::flush();
        assert_eq!(destroyed.load(Ordering::SeqCst), 1, "on a thread that may call the driver");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c22_waiting_for_a_stream_that_others_enqueue_on() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let raw = Raw::create(&context, &Arc::new(AtomicU32::new(0)));
        let created = context.create_stream()?;
        let mut buffer = created.alloc_zeroed::<u8>(1000)?;
        created.synchronize()?;
        for theirs in [raw.wrap(&context)?, context.default_stream()?] {
            // The library does not know this work.
            let stall = stack::with(context.as_raw(), || stall(theirs.as_raw()));
            created.wait_stream(&theirs)?;
            created.fill(&mut buffer, 1)?;
            for _ in 0..1000 {
                assert!(!created.query()?, "it waits for foreign work on {theirs:?}");
            }
            stall.release();
            created.synchronize()?;
        }
        Ok(())
    }
}

/// Records its name when it is dropped.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().expect("no panic").push(self.0);
    }
}

gpu_test! {
    needs 1;
    fn s17_the_owner_of_a_stream_goes_before_that_of_its_context() -> Result<()> {
        let theirs = support::context::Foreign::create(0);
        let gone = Arc::new(Mutex::new(Vec::new()));
        let owner = |name| Arc::new(Named(name, gone.clone()));
        // SAFETY: the test destroys the context at its end.
        let context = unsafe { Context::from_raw(theirs.handle(), owner("context")) }?;
        let raw = Raw::create(&context, &Arc::new(AtomicU32::new(0)));
        // SAFETY: the handle is destroyed after all of this.
        let stream = unsafe { Stream::from_raw(raw.stream.handle(), &context, owner("stream")) }?;
        drop(context);
        assert!(gone.lock().expect("no panic").is_empty(), "the stream is there");
        drop(stream);
        assert_eq!(*gone.lock().expect("no panic"), ["stream", "context"]);
        drop(raw);
        Ok(())
    }
}
