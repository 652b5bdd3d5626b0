//! Driver calls of asynchronous waits.

use cuda_core::PinnedBuffer;
use support::{Alarm, block_on};

use super::*;

#[test]
fn what_is_ready_costs_nothing() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        let mut buffer = stream.alloc_zeroed::<u32>(8)?;
        stream.synchronize()?;
        driver.expect([], || block_on(host.ready()))?;
        driver.expect([], || block_on(host.ready_mut()))?;
        driver.expect([], || block_on(buffer.ready_mut()))?;
        drop((buffer, host));
        Ok(())
    });
}

#[test]
fn a_wait_costs_an_event() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        let buffer = stream.alloc_zeroed::<u32>(8)?;
        stream.download(&buffer, &mut host)?;
        let event = [&entered(["cuEventCreate"])[..], &[RECORD]].concat();
        let query = relaxed("cuEventQuery");
        let whole = [&event[..], &query].concat();
        let mark = driver.session.mark();
        driver.expect(whole.clone(), || block_on(host.ready()))?;
        driver.expect([], || host.as_slice().map(drop))?;
        driver.expect(whole, || block_on(stream.ready()))?;
        // The waiter thread makes these calls.
        let calls = driver.session.since(mark);
        let count = |name| calls.iter().filter(|call| call.name == name).count();
        assert_eq!((count("cuEventSynchronize"), count("cuEventDestroy_v2")), (2, 2));
        drop((buffer, host));
        Ok(())
    });
}

#[test]
fn a_thread_that_waits_is_relaxed_once() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mark = driver.session.mark();
        for _ in 0..3 {
            drop(stream.alloc_zeroed::<u32>(8)?);
            block_on(stream.ready())?;
        }
        let calls = driver.session.since(mark);
        let mut waits: Vec<_> = calls
            .iter()
            .filter(|call| call.name == "cuEventSynchronize")
            .map(|call| call.thread)
            .collect();
        assert_eq!(waits.len(), 3);
        waits.dedup();
        for thread in waits {
            let exchanges =
                calls.iter().filter(|call| call.thread == thread && call.name == EXCHANGE);
            assert_eq!(exchanges.count(), 1);
        }
        Ok(())
    });
}

#[test]
fn futures_of_one_point_share_an_event() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let held = support::stall(stream.as_raw());
        let mut buffer = stream.alloc_zeroed::<u32>(8)?;
        stream.fill(&mut buffer, 1)?;
        let alarm = Alarm::new();
        let mut first = buffer.ready();
        assert!(alarm.poll(&mut first).is_pending());
        let mut second = driver.expect([], || buffer.ready());
        driver.expect(relaxed("cuEventQuery"), || {
            assert!(alarm.poll(&mut second).is_pending());
        });
        held.release();
        alarm.block_on(first)?;
        alarm.block_on(second)
    });
}

#[test]
fn owned_copies_cost_1() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mut buffer = stream.alloc_zeroed::<u32>(8)?;
        let flight = driver.expect([UPLOAD], || stream.upload_owned(vec![1; 8], &mut buffer))?;
        stream.synchronize()?;
        let vec = driver.expect([], || flight.wait())?;
        let flight = driver.expect([DOWNLOAD], || stream.download_owned(&buffer, vec))?;
        stream.synchronize()?;
        driver.expect([], || drop(flight));
        Ok(())
    });
}
