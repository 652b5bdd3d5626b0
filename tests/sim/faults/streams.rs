//! The current stream, pools of streams, values, signals, foreign streams.

use std::sync::Arc;

use cuda_core::{Device, Event, EventFlags, Signal, Stream, WaitValue};

use super::harness::{Token, again, first, sweep};

#[test]
fn current_streams() {
    sweep(|| {
        let (_, context) = first()?;
        let other = Device::get(1)?.context()?;
        let (s, t) = (context.create_stream()?, other.create_stream()?);
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let outer = s.enter()?;
        {
            let _inner = t.enter()?;
            event.record_current()?;
        }
        outer.restore()?;
        assert_eq!(context.current_stream()?, context.default_stream()?);
        assert_eq!(other.current_stream()?, other.default_stream()?);
        Ok(())
    });
}

#[test]
fn pools_of_streams() {
    sweep(|| {
        let (_, context) = first()?;
        let pool = context.stream_builder().build_pool(3)?;
        for _ in 0..4 {
            let stream = pool.next_stream();
            drop(stream.alloc_zeroed::<u8>(8)?);
        }
        pool.streams()[2].synchronize()?;
        pool.streams()[0].driver_id().map(drop)
    });
}

#[test]
fn streams_of_others() {
    sweep(|| {
        let (_, context) = first()?;
        // Created here; only the owner destroys the stream.
        let owned = context.create_stream()?;
        let raw = owned.as_raw();
        let (owner, token) = (Arc::new((owned.clone(), Token::new())), Token::new());
        drop(owned);
        // SAFETY: the owner has a handle of the stream, which keeps it alive.
        let stream = unsafe { Stream::from_raw(raw, &context, owner) }?;
        let mut buffer = stream.alloc::<u8>(8)?;
        stream.fill(&mut buffer, 1)?;
        stream.launch_host_func(move || drop(token))?;
        stream.synchronize()
    });
}

#[test]
fn values() {
    sweep(|| {
        let (_, context) = first()?;
        let (s, t) = (context.create_stream()?, context.per_thread_stream()?);
        let mut word = context.alloc::<u32>(2)?;
        s.fill(&mut word, 0)?;
        t.write_value(word.slice_mut(1..)?, 3)?;
        s.wait_value(word.slice(1..)?, WaitValue::Geq(3))?;
        let mut wide = context.alloc::<u64>(1)?;
        s.write_value(&mut wide, 4)?;
        t.wait_value(&wide, WaitValue::And(4))?;
        let mut back = [0; 2];
        s.download(&word, &mut back)?;
        assert_eq!(back, [0, 3]);
        t.synchronize()
    });
}

#[test]
fn signals() {
    sweep(|| {
        let (device, context) = first()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let (one, two) =
            (Signal::new(&device.context()?, 0u32)?, Signal::new(&device.context()?, 0u64)?);
        s.write_signal(&one, 1)?;
        // A failed write may not have happened: the code below ends all waits for it.
        let waits = t.wait_signal(&one, WaitValue::Eq(1));
        one.set(1);
        waits?;
        again(|| t.write_signal(&two, 2))?;
        t.synchronize()?;
        assert_eq!(two.get(), 2);
        drop(t);
        // The slot of a signal that work still uses is not reused.
        s.write_signal(&two, 3)?;
        drop(two);
        let other = Signal::new(&device.context()?, 0u64)?;
        s.synchronize()?;
        assert_eq!(other.get(), 0);
        Ok(())
    });
}
