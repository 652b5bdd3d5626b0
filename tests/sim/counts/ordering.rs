//! Calls for ordering: none within one stream, none for a known order, two for a real dependency.

use cuda_core::{Device, Event, EventFlags, PinnedBuffer};

use super::*;

#[test]
fn a_dependency_costs_2_more_once_the_event_exists() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let mut a = s.alloc_zeroed::<u32>(16)?;
        let mut b = t.alloc_zeroed::<u32>(16)?;
        driver.expect([RECORD, WAIT, COPY], || t.copy(&a, &mut b))?;
        // The order is known by now.
        driver.expect([COPY], || t.copy(&a, &mut b))?;
        // The write must come after the reads.
        driver.expect([RECORD, WAIT, "cuMemsetD32Async"], || s.fill(&mut a, 2))?;
        driver.expect(["cuMemsetD32Async"], || s.fill(&mut a, 3))
    });
}

#[test]
fn the_first_dependency_of_a_stream_makes_its_event() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let mut a = s.alloc::<u32>(16)?;
        let calls = [entered(["cuEventCreate"]), vec![RECORD, WAIT, "cuMemsetD32Async"]].concat();
        driver.expect(calls, || t.fill(&mut a, 1))
    });
}

/// The host has waited for the program's own event: no other call has to show that the copy is complete.
#[test]
fn what_an_event_has_shown_to_be_done_is_not_waited_for() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        let a = s.alloc_zeroed::<u32>(16)?;
        let mut b = s.alloc::<u32>(16)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        s.download(&a, &mut host)?;
        driver.expect([RECORD], || event.record(&s))?;
        s.fill(&mut b, 1)?; // for the next step
        driver.expect(relaxed("cuEventSynchronize"), || event.synchronize())?;
        driver.expect([""; 0], || host.as_slice().map(drop))?;
        assert!(!s.query()?, "the fill is still pending");

        // The event is queried.
        s.download(&a, &mut host)?;
        event.record(&s)?;
        s.fill(&mut b, 2)?;
        while !event.query()? {}
        driver.expect([""; 0], || host.as_slice().map(drop))?;

        let waits = || [[RECORD].as_slice(), &relaxed("cuEventSynchronize")].concat();
        // The event is recorded on another stream meanwhile.
        s.download(&a, &mut host)?;
        event.record(&s)?;
        event.record(&t)?;
        driver.expect(relaxed("cuEventSynchronize"), || event.synchronize())?;
        driver.expect(waits(), || host.as_slice().map(drop))?;

        // Other code may have recorded the event anywhere.
        s.download(&a, &mut host)?;
        event.record(&s)?;
        let raw = event.as_raw();
        event.synchronize()?;
        driver.expect(waits(), || host.as_slice().map(drop))?;

        // An event of other code may have been recorded anywhere from the start.
        // SAFETY: `event` destroys it when it is dropped.
        let theirs = unsafe { Event::from_raw(raw, EventFlags::DISABLE_TIMING, &context, event) }?;
        s.download(&a, &mut host)?;
        theirs.record(&s)?;
        theirs.synchronize()?;
        driver.expect(waits(), || host.as_slice().map(drop))?;
        Ok(())
    });
}

/// A stream that waits for the program's own event waits for nothing else before that event.
#[test]
fn what_a_stream_has_waited_for_by_an_event_it_does_not_wait_for_again() {
    Counted::run(|driver| {
        let (context, up, compute) = two_streams()?;
        let host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        let mut parts = [0; 3].map(|_| up.alloc::<u32>(16));
        let mut result = compute.alloc::<u32>(16)?;
        let mut events = Vec::new();
        for part in &mut parts {
            up.upload(&host, part.as_mut().expect("memory"))?;
            let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
            driver.expect([RECORD], || event.record(&up))?;
            events.push(event);
        }
        for (part, event) in parts.iter().zip(&events) {
            let part = part.as_ref().expect("memory");
            driver.expect([WAIT], || compute.wait_event(event))?;
            driver.expect([COPY], || compute.copy(part, &mut result))?;
        }
        // The event's last record is on another stream, so it shows nothing about this one.
        let mut part = up.alloc::<u32>(16)?;
        up.upload(&host, &mut part)?;
        events[0].record(&up)?;
        events[0].record(&compute)?;
        compute.wait_event(&events[0])?;
        driver.expect([RECORD, WAIT, COPY], || compute.copy(&part, &mut result))?;
        Ok(())
    });
}

#[test]
fn completed_work_is_no_dependency() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let mut a = s.alloc_zeroed::<u32>(16)?;
        s.synchronize()?;
        driver.expect(["cuMemsetD32Async"], || t.fill(&mut a, 1))?;
        t.synchronize()?;
        driver.expect(relaxed(FREE), || drop(a));
        Ok(())
    });
}

#[test]
fn readers_do_not_wait_for_each_other() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        let a = s.alloc_zeroed::<u32>(16)?;
        let mut x = PinnedBuffer::zeroed(&context, 16)?;
        let mut y = PinnedBuffer::zeroed(&context, 16)?;
        s.synchronize()?;
        driver.expect([DOWNLOAD], || s.download(&a, &mut x))?;
        driver.expect([DOWNLOAD], || t.download(&a, &mut y))
    });
}

#[test]
fn halves_on_two_streams_do_not_wait_for_each_other() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let mut a = s.alloc_zeroed::<u32>(16)?;
        s.synchronize()?;
        let (mut head, mut tail) = a.split_at_mut(8)?;
        for _ in 0..3 {
            driver.expect(["cuMemsetD32Async"], || s.fill(&mut head, 1))?;
            driver.expect(["cuMemsetD32Async"], || t.fill(&mut tail, 2))?;
        }
        Ok(())
    });
}

#[test]
fn drop_costs_2_more_for_each_foreign_stream() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        let u = context.create_stream()?;
        warm(&u)?;
        let mut host = PinnedBuffer::zeroed(&context, 16)?;
        let mut also = PinnedBuffer::zeroed(&context, 16)?;

        let used_by_one = s.alloc_zeroed::<u32>(16)?;
        t.download(&used_by_one, &mut host)?;
        driver.expect([RECORD, WAIT, EXCHANGE, FREE, EXCHANGE], || drop(used_by_one));
        // A stream reuses its event once that has completed; until then it creates another.
        t.synchronize()?;
        let used_by_two = s.alloc_zeroed::<u32>(16)?;
        t.download(&used_by_two, &mut host)?;
        u.download(&used_by_two, &mut also)?;
        let freed = [RECORD, WAIT, RECORD, WAIT, EXCHANGE, FREE, EXCHANGE];
        driver.expect(freed, || drop(used_by_two));
        t.synchronize()?;
        let waited_for = s.alloc_zeroed::<u32>(16)?;
        t.download(&waited_for, &mut host)?;
        s.wait_stream(&t)?;
        driver.expect(relaxed(FREE), || drop(waited_for));
        Ok(())
    });
}

#[test]
fn waiting_and_checkpoints_cost_nothing_twice() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        driver.expect([""; 0], || s.wait_stream(&t))?;
        driver.expect([""; 0], || s.checkpoint())?;
        let _a = t.alloc::<u8>(1)?;
        driver.expect([RECORD, WAIT], || s.wait_stream(&t))?;
        driver.expect([""; 0], || s.wait_stream(&t))?;
        driver.expect([""; 0], || s.wait_stream(&s))?;
        t.synchronize()?;
        let _b = t.alloc::<u8>(1)?;
        driver.expect([RECORD], || t.checkpoint())?;
        driver.expect([""; 0], || t.checkpoint())?;
        // The checkpoint serves any later wait.
        driver.expect([WAIT], || s.wait_stream(&t))
    });
}

#[test]
fn host_functions_cost_1_and_a_checkpoint_where_work_is_pending() {
    Counted::run(|driver| {
        let (_, s, _) = two_streams()?;
        let launch = "cuLaunchHostFunc";
        driver.expect([launch], || s.launch_host_func(|| {}))?;
        s.synchronize()?;
        let _a = s.alloc::<u8>(1)?;
        driver.expect([RECORD, launch], || s.launch_host_func(|| {}))?;
        s.synchronize()?;
        let _b = s.alloc::<u8>(1)?;
        s.checkpoint()?;
        driver.expect([launch], || s.launch_host_func(|| {}))?;
        s.synchronize()
    });
}

#[test]
fn host_functions_of_a_blocking_stream_cost_a_checkpoint_of_each_stream_of_its_set() {
    Counted::run(|driver| {
        let launch = "cuLaunchHostFunc";
        let (context, s, _) = two_streams()?;
        let legacy = context.default_stream()?;
        let blocking = || context.stream_builder().blocking().build();
        let (a, b) = (blocking()?, blocking()?);
        for stream in [&legacy, &a, &b] {
            warm(stream)?;
        }
        let mut fill = legacy.alloc::<u8>(1)?;
        context.synchronize()?;
        // No work is pending on any of the streams.
        driver.expect([launch], || a.launch_host_func(|| {}))?;
        context.synchronize()?;
        let (_on_s, _on_b) = (s.alloc::<u8>(1)?, b.alloc::<u8>(1)?);
        driver.expect([RECORD, launch], || a.launch_host_func(|| {}))?;
        // The stream needs its own event; the other stream already has one.
        driver.expect([RECORD, launch], || a.launch_host_func(|| {}))?;
        // A stream outside the set is not involved.
        driver.expect([RECORD, launch], || s.launch_host_func(|| {}))?;
        context.synchronize()?;
        driver.expect([launch], || a.launch_host_func(|| {}))?;
        let _beside_it = b.alloc::<u8>(1)?;
        // Only the legacy stream's first work after the set waits for it.
        let first = entered([ASK, RECORD, RECORD, "cuMemsetD8Async"]);
        driver.expect(first, || legacy.fill(&mut fill, 1))?;
        let _behind_it = b.alloc::<u8>(1)?;
        let second = entered([ASK, "cuMemsetD8Async"]);
        driver.expect(second, || legacy.fill(&mut fill, 2))?;
        context.synchronize()
    });
}

#[test]
fn the_host_waits_on_one_event() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        let a = s.alloc_zeroed::<u32>(16)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        driver.expect([""; 0], || host.as_slice().map(drop))?;
        s.download(&a, &mut host)?;
        let wait = [&[RECORD][..], &relaxed("cuEventSynchronize")].concat();
        driver.expect(wait, || host.as_slice().map(|host| assert_eq!(host, [0; 16])))?;
        driver.expect([""; 0], || host.as_slice().map(drop))?;
        driver.expect([""; 0], || host.try_as_slice().map(|host| assert!(host.is_some())))?;
        driver.expect([""; 0], || host.as_mut_slice().map(drop))?;
        // After a wait of any kind, the work counts as complete.
        t.wait_stream(&s)?;
        t.download(&a, &mut host)?;
        t.synchronize()?;
        driver.expect([""; 0], || host.as_mut_slice().map(drop))?;
        t.download(&a, &mut host)?;
        context.synchronize()?;
        driver.expect([""; 0], || host.as_mut_slice().map(drop))?;
        // Readers do not prevent the host from reading either.
        let mut b = s.alloc::<u32>(16)?;
        s.upload(&host, &mut b)?;
        driver.expect([""; 0], || host.as_slice().map(drop))?;
        Ok(())
    });
}

#[test]
fn polling_costs_a_query_once_recorded() {
    Counted::run(|driver| {
        driver.session.set_polls(2);
        let (context, s, _) = two_streams()?;
        driver.session.set_mode(cuda_sim::Mode::Lazy);
        let a = s.alloc_zeroed::<u32>(16)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        s.download(&a, &mut host)?;
        let pending = |host: Option<&[u32]>| assert!(host.is_none());
        let query = relaxed("cuEventQuery");
        driver.expect([&[RECORD][..], &query].concat(), || host.try_as_slice().map(pending))?;
        driver.expect(query, || host.try_as_slice().map(pending))?;
        driver.expect(query, || host.try_as_slice().map(|host| assert!(host.is_some())))?;
        driver.expect([""; 0], || host.try_as_slice().map(|host| assert!(host.is_some())))
    });
}

/// Work of another library makes the calls that conflicts need, however many buffers it uses, and queries
/// whether other code, which has the handle, captures the stream.
#[test]
fn library_work_costs_its_conflicts() {
    Counted::run(|driver| {
        const ASKED: &str = "cuStreamIsCapturing";
        let (_, stream, other) = two_streams()?;
        let a = other.alloc_zeroed::<u32>(16)?;
        let (b, mut c) = (stream.alloc_zeroed::<u32>(16)?, stream.alloc_zeroed::<u32>(16)?);
        let mut enqueue = || {
            let work = stream.work().read(&a).read(&b).write(&mut c);
            // SAFETY: nothing is enqueued.
            unsafe { work.enqueue(|_| ()) }
        };
        driver.expect([RECORD, WAIT], &mut enqueue)?; // whose handle is out from now on
        driver.expect([ASKED], &mut enqueue)?;
        driver.expect([ASKED], &mut enqueue)
    });
}
