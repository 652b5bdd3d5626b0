//! Futures, and copies that own their host memory.

use cuda_core::{Device, Event, EventFlags, PinnedBuffer};
use support::{Alarm, block_on, one_stream, two_streams};

use super::harness::{first, sweep};

#[test]
fn awaited() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut a = s.alloc::<u32>(8)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        s.fill(&mut a, 3)?;
        t.download(&a, &mut host)?;
        block_on(host.ready())?;
        assert_eq!(host.as_slice()?, [3; 8]);
        block_on(a.ready_mut())?;
        block_on(t.ready())
    });
}

#[test]
fn behind_a_checkpoint() {
    sweep(|| {
        let (context, s) = one_stream()?;
        let mut a = s.alloc::<u32>(8)?;
        s.fill(&mut a, 3)?;
        s.checkpoint()?;
        block_on(a.ready())?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        event.record(&s)?;
        block_on(event.ready())
    });
}

#[test]
fn given_up() {
    sweep(|| {
        let (context, s) = one_stream()?;
        let mut a = s.alloc::<u32>(8)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        s.fill(&mut a, 3)?;
        s.download(&a, &mut host)?;
        let mut ready = host.ready();
        let _ = Alarm::new().poll(&mut ready);
        drop(ready);
        drop(host.ready());
        assert_eq!(host.as_slice()?, [3; 8]);
        Ok(())
    });
}

#[test]
fn of_every_kind_of_stream() {
    sweep(|| {
        let (_, context) = first()?;
        block_on(context.default_stream()?.ready())?;
        block_on(context.per_thread_stream()?.ready())?;
        let s = context.create_stream()?;
        let a = s.alloc_zeroed::<u32>(8)?;
        let finished = s.ready();
        drop(a);
        drop(s);
        block_on(finished)
    });
}

#[test]
fn owned() {
    sweep(|| {
        let s = Device::get(0)?.create_stream()?;
        let mut a = s.alloc::<u32>(8)?;
        let up = s.upload_owned(vec![5; 8], &mut a);
        let vec = up?.wait()?;
        let down = s.download_owned(&a, vec)?;
        assert_eq!(block_on(async { down.await })?, [5; 8]);
        drop(s.upload_owned(vec![6; 8], &mut a)?);
        let mut back = [0; 8];
        s.download(&a, &mut back)?;
        assert_eq!(back, [6; 8]);
        Ok(())
    });
}
