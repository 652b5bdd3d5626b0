//! Futures and events of launches.

use std::task::Poll;
use std::thread;

use cuda_core::{Event, EventFlags, Graph, PinnedBuffer, Result};
use support::{Alarm, gpu_test, one_stream, stall, two_streams};

gpu_test! {
    needs 1, asynchronous;
    fn l_a_future_waits_for_a_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let y = stream.alloc_zeroed::<u32>(100)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 3)?;
            stream.download(&x, &mut host)
        })?;
        let mut exec = graph.instantiate()?;
        stream.synchronize()?;
        assert!(matches!(Alarm::new().poll(&mut x.ready()), Poll::Ready(Ok(()))), "not launched");
        let stalled = stall(stream.as_raw());
        exec.lend_mut(&mut host).launch(&stream)?;
        let alarms = [Alarm::new(), Alarm::new(), Alarm::new()];
        let mut futures = [x.ready(), host.ready(), stream.ready()];
        for (alarm, future) in alarms.iter().zip(&mut futures) {
            assert!(alarm.poll(future).is_pending());
            assert_eq!(alarm.wakes(), 0);
        }
        let mut unused = y.ready();
        assert!(matches!(Alarm::new().poll(&mut unused), Poll::Ready(Ok(()))), "of no operation");
        stalled.release();
        for (alarm, future) in alarms.iter().zip(&mut futures) {
            while alarm.wakes() == 0 {
                thread::park();
            }
            assert!(matches!(alarm.poll(future), Poll::Ready(Ok(()))));
            assert_eq!(alarm.wakes(), 1);
        }
        drop(futures);
        assert_eq!(host.as_slice()?, [3; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_stream_waits_for_an_event_behind_a_launch() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = other.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 3))?;
        let mut exec = graph.instantiate()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        stream.synchronize()?;
        other.synchronize()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        event.record(&stream)?;
        assert!(!event.query()?, "the launch is pending");
        other.wait_event(&event)?;
        // It uses other memory, so only the event orders it after the launch.
        other.fill(&mut y, 4)?;
        assert!(!other.query()?, "it waits for the event");
        assert!(Alarm::new().poll(&mut y.ready()).is_pending(), "it waits for the event");
        stalled.release();
        other.synchronize()?;
        assert!(event.query()?);
        assert_eq!(stream.download_vec(&x)?, [3; 100]);
        assert_eq!(other.download_vec(&y)?, [4; 100]);
        Ok(())
    }
}
