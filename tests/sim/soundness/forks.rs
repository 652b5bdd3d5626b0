//! S35: the process forks while another thread holds a lock of this crate.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use cuda_core::adaptors::Logging;
use cuda_core::nccl::{Ranks, Reduction};
use cuda_core::{
    Allocator, Context, ContextFlags, Device, DeviceAllocator as _, DeviceGroup, Error, Graph,
    Result, Stream, synchronize_and_trim,
};
use support::{in_a_fork, two_devices};

use super::unbound::with_idle_events;
use super::{clean, device, leaking, primary};

/// Returns the exit code of a child whose call must be refused.
fn unless_refused<T>(answer: Result<T>) -> u8 {
    u8::from(!matches!(answer, Err(Error::Forked)))
}

#[test]
fn s35_fork_beside_a_thread_that_looks_at_a_graph() {
    clean(|session| {
        let mut x = device().create_stream()?.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&primary(), |stream| stream.fill(&mut x, 1))?;
        thread::scope(|scope| {
            let held = session.hold("cuGraphGetNodes");
            let looks = scope.spawn(|| graph.node_count());
            held.await_call();
            in_a_fork(|| unless_refused(graph.node_count()));
            in_a_fork(|| u8::from(!format!("{graph:?}").starts_with("Graph")));
            drop(held);
            assert_eq!(looks.join().expect("no panic")?, 1);
            Ok(())
        })
    });
}

#[test]
fn s35_fork_beside_a_thread_that_changes_an_executable() {
    clean(|session| {
        let mut x = device().create_stream()?.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&primary(), |stream| stream.fill(&mut x, 1))?;
        let (node, mut exec) = (graph.nodes()?[0].id(), graph.instantiate()?);
        thread::scope(|scope| {
            let held = session.hold("cuGraphExecMemsetNodeSetParams");
            let changes = scope.spawn(|| exec.set_fill(node, &mut x, 2));
            held.await_call();
            in_a_fork(|| unless_refused(graph.instantiate()));
            drop(held);
            changes.join().expect("no panic")
        })
    });
}

#[test]
fn s35_fork_beside_a_thread_that_makes_the_ranks_of_a_group() {
    clean(|session| {
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let (mut x, mut y) = (group.alloc_zeroed::<u32>(9)?, group.alloc_zeroed::<u32>(9)?);
        thread::scope(|scope| {
            let held = session.hold("ncclCommInitRankConfig");
            let reduces = scope.spawn(|| group.all_reduce_in_place(&mut x, Reduction::Sum));
            held.await_call();
            in_a_fork(|| unless_refused(group.all_reduce_in_place(&mut y, Reduction::Sum)));
            drop(held);
            reduces.join().expect("no panic")
        })?;
        group.synchronize()
    });
}

#[test]
fn s35_fork_beside_a_thread_that_calls_nccl() {
    clean(|session| {
        let (contexts, streams) = two_devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = [streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        thread::scope(|scope| {
            let held = session.hold("ncclGroupEnd");
            let reduce = || ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum);
            let reduces = scope.spawn(reduce);
            held.await_call();
            in_a_fork(|| u8::from(!ranks.as_raw().all(|raw| raw.is_null())));
            drop(held);
            reduces.join().expect("no panic")
        })?;
        streams.iter().try_for_each(Stream::synchronize)
    });
}

/// Copies of a group record events of streams before they bind a stream.
#[test]
fn s35_a_groups_copy_calls_no_driver() {
    clean(|session| {
        let (group, here) = with_idle_events()?;
        let mut there = group.alloc_zeroed::<u8>(64)?;
        in_a_fork(|| {
            let before = session.total_calls();
            let refused = unless_refused(group.rotate(&here, &mut there, 1));
            refused + 2 * u8::from(session.total_calls() != before)
        });
        Ok(())
    });
}

/// A writer that waits at each allocation.
struct Slow {
    writes: mpsc::Sender<()>,
    goes_on: mpsc::Receiver<()>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.starts_with(b"#") {
            let _ = self.writes.send(());
            let _ = self.goes_on.recv();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn s35_fork_beside_a_thread_that_writes_the_log() {
    clean(|_| {
        let stream = device().create_stream()?;
        let ((writes, writing), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
        let slow = Slow { writes, goes_on };
        let logging = Arc::new(Logging::new(Allocator::plain(), slow).expect("the heading"));
        let allocator = Allocator::new(logging.clone());
        thread::scope(|scope| {
            let go_on: mpsc::Sender<()> = go_on;
            let allocates = scope.spawn(|| stream.alloc_with::<u8>(&allocator, 16).map(drop));
            writing.recv().expect("the writer is called");
            in_a_fork(|| u8::from(logging.flush().is_ok()));
            in_a_fork(|| unless_refused(logging.allocate(&stream, 16)));
            drop(go_on);
            allocates.join().expect("no panic")
        })
    });
}

#[test]
fn s35_fork_beside_threads_that_look_for_contexts() {
    leaking(|_| {
        let stop = AtomicBool::new(false);
        // A search among many contexts takes long, so that most children are forked while a thread searches.
        let make = |_| Context::new(device(), ContextFlags::default());
        let made = (0..1000).map(make).collect::<Result<Vec<_>>>()?;
        let work = || -> Result<()> {
            let _guard = made[made.len() - 1].enter()?;
            while !stop.load(Ordering::Relaxed) {
                Context::current()?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            let forked = std::panic::catch_unwind(|| {
                for _ in 0..50 {
                    in_a_fork(|| unless_refused(synchronize_and_trim()));
                }
            });
            stop.store(true, Ordering::Relaxed);
            forked.expect("each child is refused");
            threads.into_iter().try_for_each(|it| it.join().expect("no panic"))
        })
    });
}
