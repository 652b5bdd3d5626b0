//! Drops in several orders, and `close` in their place.

use cuda_core::{
    Context, ContextFlags, Device, Error, Event, EventFlags, PinnedBuffer, Rejected, Result,
};
use support::two_streams;

use super::harness::{first, sweep};

#[test]
fn stream_first() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(64)?;
        stream.fill(&mut buffer, 1)?;
        drop(stream);
        drop(buffer);
        Ok(())
    });
}

#[test]
fn user_stream_first() {
    sweep(|| {
        let (context, home, user) = two_streams()?;
        let mut buffer = home.alloc::<u8>(64)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 64)?;
        user.fill(&mut buffer, 1)?;
        user.download(&buffer, &mut host)?;
        drop(user);
        drop(buffer);
        drop(home);
        assert_eq!(host.as_slice()?, [1; 64]);
        Ok(())
    });
}

#[test]
fn pinned_memory_while_it_is_read_and_written() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut buffer = s.alloc::<u8>(64)?;
        let source = PinnedBuffer::from_slice(&context, &[3; 64])?;
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 64)?;
        s.upload(&source, &mut buffer)?;
        t.download(&buffer, &mut target)?;
        drop(source);
        drop(t);
        drop(target);
        Ok(())
    });
}

#[test]
fn everything_of_a_created_context_in_either_order() {
    sweep(|| {
        for forward in [true, false] {
            let context = Context::new(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
            let stream = context.create_stream()?;
            let event = Event::new(&context, EventFlags::DEFAULT)?;
            let mut buffer = stream.alloc::<u8>(64)?;
            let host = PinnedBuffer::from_slice(&context, &[3; 64])?;
            stream.upload(&host, &mut buffer)?;
            event.record(&stream)?;
            if forward {
                drop(context);
                drop(stream);
                drop(event);
                drop(buffer);
                drop(host);
            } else {
                drop(host);
                drop(buffer);
                drop(event);
                drop(stream);
                drop(context);
            }
        }
        Ok(())
    });
}

#[test]
fn legacy_stream_first() {
    sweep(|| {
        let (_, context) = first()?;
        let legacy = context.default_stream()?;
        let user = context.create_stream()?;
        let mut a = legacy.alloc_zeroed::<u8>(64)?;
        let mut b = user.alloc_zeroed::<u8>(64)?;
        legacy.copy(&b, &mut a)?;
        user.copy(&a, &mut b)?;
        drop(legacy);
        drop(a);
        drop(user);
        drop(b);
        Ok(())
    });
}

/// If `close` fails it returns the object, which is then dropped: this tries again if the object was kept.
#[test]
fn explicit_twins() {
    sweep(|| {
        let (context, stream, user) = two_streams()?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let mut buffer = stream.alloc_zeroed::<u8>(64)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 64)?;
        user.download(&buffer, &mut host)?;
        user.fill(&mut buffer, 1)?;
        event.record(&user)?;
        fn given_back<T>(closed: std::result::Result<(), Rejected<T>>) -> Result<()> {
            closed.map_err(Error::from)
        }
        let closed = [
            given_back(user.clone().close()),
            given_back(user.close()),
            given_back(event.close()),
            given_back(buffer.close()),
            given_back(host.close()),
            given_back(stream.close()),
        ];
        closed.into_iter().collect()
    });
}

/// An object that `close` returned with an error still works, or is empty.
#[test]
fn refused_twins_live_on() {
    sweep(|| {
        let (_, context) = first()?;
        let (stream, user) = (context.create_stream()?, context.create_stream()?);
        let mut buffer = stream.alloc_zeroed::<u8>(8)?;
        user.fill(&mut buffer, 4)?;
        if let Err(Rejected { value: user, .. }) = user.close() {
            let refused = user.fill(&mut buffer, 4);
            assert!(matches!(refused, Err(Error::GivenUp { .. })), "{refused:?}");
        }
        if let Err(Rejected { error, value: buffer }) = buffer.close() {
            if !buffer.is_empty() {
                let mut back = [0; 8];
                stream.download(&buffer, &mut back)?;
                assert_eq!(back, [4; 8]);
            }
            return Err(error);
        }
        Ok(())
    });
}

#[test]
fn during_a_panic() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut buffer = s.alloc::<u8>(8)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 8)?;
        t.fill(&mut buffer, 1)?;
        t.download(&buffer, &mut host)?;
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _all = (t, buffer, host, s);
            std::panic::resume_unwind(Box::new("out"));
        }));
        assert_eq!(unwound.expect_err("unwound").downcast_ref(), Some(&"out"));
        Ok(())
    });
}
