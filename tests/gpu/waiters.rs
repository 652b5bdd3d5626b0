//! The waiter threads: what they wake, and which of them a flush waits for.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use cuda_core::{Device, Graph, PinnedBuffer, Result};
use support::{Alarm, WatchedHost, block_on, gpu_test, pattern, stall};

const LEN: usize = 4096;

gpu_test! {
    needs 1, asynchronous;
    fn an_earlier_point_does_not_wait_for_a_later_one() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let host = PinnedBuffer::from_slice(stream.context(), &pattern(1, LEN))?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let first = stall(stream.as_raw());
        stream.upload(&host, &mut buffer)?;
        stream.checkpoint()?;
        let second = stall(stream.as_raw());
        let (all, early) = (Alarm::new(), Alarm::new());
        let mut finished = stream.ready();
        assert!(all.poll(&mut finished).is_pending(), "a thread sleeps for the end");
        // By the time the second future exists, the thread usually sleeps already.
        let mut again = stream.ready();
        assert!(all.poll(&mut again).is_pending());
        let mut ready = buffer.ready();
        assert!(early.poll(&mut ready).is_pending(), "and then an earlier point is awaited");
        first.release();
        early.block_on(&mut ready)?;
        assert_eq!(all.wakes(), 0, "the stream is still held up");
        second.release();
        all.block_on(finished)?;
        all.block_on(again)
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn a_dropped_owner_may_wait_for_the_same_stream() -> Result<()> {
        let stream = Arc::new(Device::get(0)?.create_stream()?);
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let waited = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let held = stall(stream.as_raw());
        for waited in &waited {
            // A weak reference: a leaked owner does not leak the stream.
            let (own, waited) = (Arc::downgrade(&stream), Arc::clone(waited));
            let host = WatchedHost::new(pattern(2, LEN), move |_| {
                if let Some(stream) = own.upgrade() {
                    let is_done = block_on(stream.ready()).is_ok();
                    waited.store(is_done, Ordering::Release);
                }
            });
            drop(stream.upload_owned(host, &mut buffer)?);
        }
        held.release();
        cuda_core::drops::flush();
        for waited in &waited {
            assert!(waited.load(Ordering::Acquire), "a flush waits for what drops wait for");
        }
        Ok(())
    }
}

/// When dropped, waits until the other end is dropped.
struct Listens(Arc<Mutex<Option<mpsc::Receiver<()>>>>);

impl Drop for Listens {
    fn drop(&mut self) {
        let given = self.0.lock().ok().and_then(|mut given| given.take());
        let _ = given.map(|other| other.recv());
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn what_a_graph_kept_may_wait_for_a_future_of_the_same_launch() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(LEN)?;
        let (awaited, other) = mpsc::channel::<()>();
        let given = Arc::new(Mutex::new(None));
        let listens = Listens(Arc::clone(&given));
        let graph = Graph::capture(stream.context(), |stream| {
            stream.launch_host_func_each(move || _ = &listens)?;
            stream.fill(&mut buffer, 7)
        })?;
        let mut exec = graph.instantiate()?;
        let held = stall(stream.as_raw());
        exec.launch(&stream)?;
        *given.lock().expect("no thread panics with it") = Some(other);
        drop((exec, graph)); // what it kept goes when the launch is done
        let (alarm, mut ready) = (Alarm::new(), buffer.ready());
        assert!(alarm.poll(&mut ready).is_pending());
        held.release();
        alarm.block_on(ready)?;
        drop(awaited);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn a_flush_does_not_wait_for_what_others_begin_meanwhile() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let (rounds, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let hold = || {
            let (held, mut finished) = (stall(stream.as_raw()), stream.ready());
            assert!(Alarm::new().poll(&mut finished).is_pending());
            (held, finished)
        };
        // A point is reached only when a call waits for the next one: the stream's waits never end.
        let always_wait = || {
            let (mut held, mut finished) = hold();
            while !over.load(Ordering::Acquire) {
                let (next_held, next) = hold();
                mem::replace(&mut held, next_held).release();
                block_on(mem::replace(&mut finished, next))?;
                rounds.fetch_add(1, Ordering::AcqRel);
            }
            held.release();
            block_on(finished)
        };
        thread::scope(|scope| {
            let other = scope.spawn(always_wait);
            for flushes in 1..=3 {
                while rounds.load(Ordering::Acquire) < 10 * flushes && !other.is_finished() {
                    thread::yield_now();
                }
                cuda_core::drops::flush();
            }
            over.store(true, Ordering::Release);
            other.join().expect("it does not panic")
        })
    }
}
