//! Events, waits between streams, host functions.

use std::time::Duration;

use cuda_core::{Event, EventFlags, PinnedBuffer};
use support::{one_stream, two_streams};

use super::harness::{Token, again, first, sweep};

#[test]
fn events() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let start = Event::new(&context, EventFlags::DEFAULT)?;
        let end = Event::new(&context, EventFlags::BLOCKING_SYNC)?;
        start.record(&s)?;
        t.wait_event(&start)?;
        end.record(&t)?;
        end.query()?;
        end.synchronize()?;
        assert!(end.elapsed_since(&start)? < Duration::from_secs(60));
        s.query()?;
        Ok(end.close()?)
    });
}

#[test]
fn events_of_default_streams() {
    sweep(|| {
        let (_, context) = first()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        event.record(&context.default_stream()?)?;
        let own = context.per_thread_stream()?;
        own.wait_event(&event)?;
        event.record(&own)?;
        event.synchronize()
    });
}

#[test]
fn streams_wait_for_each_other() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let (legacy, own) = (context.default_stream()?, context.per_thread_stream()?);
        let mut a = s.alloc::<u8>(8)?;
        s.fill(&mut a, 1)?;
        t.wait_stream(&s)?;
        legacy.wait_stream(&t)?;
        own.wait_stream(&s)?;
        own.fill(&mut a, 2)?;
        legacy.fill(&mut a, 3)?;
        s.checkpoint()?;
        s.wait_stream(&own)?;
        t.wait_stream(&legacy)?;
        t.synchronize()?;
        legacy.query()?;
        own.synchronize()
    });
}

#[test]
fn many_streams_on_one_buffer() {
    sweep(|| {
        let (context, home) = one_stream()?;
        let mut buffer = home.alloc_zeroed::<u32>(16)?;
        let mut keep = Vec::new();
        for part in 0..4 {
            let stream = context.create_stream()?;
            stream.fill(buffer.slice_mut(part * 4..part * 4 + 4)?, part as u32)?;
            // Half of the parts are dropped before the buffer is used again.
            if part % 2 == 0 {
                keep.push(stream);
            }
        }
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        keep[0].download(&buffer, &mut host)?;
        assert_eq!(host.as_slice()?, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        Ok(())
    });
}

#[test]
fn host_functions() {
    sweep(|| {
        let (_, context) = first()?;
        for stream in [context.create_stream()?, context.default_stream()?] {
            let mut buffer = stream.alloc::<u8>(8)?;
            stream.fill(&mut buffer, 1)?;
            let token = Token::new();
            stream.launch_host_func(move || drop(token))?;
            stream.fill(&mut buffer, 2)?;
            let token = Token::new();
            stream.launch_host_func(move || drop(token))?;
            stream.synchronize()?;
        }
        Ok(())
    });
}

#[test]
fn host_function_on_the_per_thread_stream() {
    sweep(|| {
        let stream = first()?.1.per_thread_stream()?;
        let token = Token::new();
        stream.launch_host_func(move || drop(token))?;
        stream.synchronize()
    });
}

#[test]
fn host_function_that_owns_memory() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let buffer = s.alloc_zeroed::<u8>(8)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 8)?;
        s.download(&buffer, &mut host)?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let token = Token::new();
        t.launch_host_func(move || drop((buffer, host, event, token)))?;
        t.synchronize()
    });
}

#[test]
fn checkpoints_again() {
    sweep(|| {
        let (_, context) = first()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let mut a = s.alloc::<u8>(8)?;
        // More events than the stream's ring holds.
        for value in 0..10 {
            again(|| s.fill(&mut a, value))?;
            again(|| s.checkpoint())?;
            again(|| t.wait_stream(&s))?;
        }
        let mut back = [0; 8];
        again(|| t.download(&a, &mut back))?;
        assert_eq!(back, [9; 8]);
        Ok(())
    });
}
