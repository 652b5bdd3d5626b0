//! Exclusive captures: work of other libraries, and conditional bodies, also on threads that the capture's
//! code does not wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use cuda_core::sys::{CUDA_SUCCESS, CUstream, symbol};
use cuda_core::{Access, Condition, DeviceBuffer, Error, Graph, Result, Stream};
use support::{gpu_test, one_stream, refusal};

use super::context;

const LEN: usize = 64;

/// Copies by a raw call, as another library does.
fn raw_copy(stream: CUstream, to: u64, from: u64) {
    // SAFETY: the callers' buffers have as many bytes.
    let code = unsafe { symbol::cuMemcpyDtoDAsync_v2(to, from, 4 * LEN, stream) };
    assert_eq!(code, CUDA_SUCCESS);
}

/// Returns a buffer that holds 4, and two that hold zeros.
fn buffers(stream: &Stream) -> Result<[DeviceBuffer<u32>; 3]> {
    let mut x = stream.alloc(LEN)?;
    stream.fill(&mut x, 4)?;
    let buffers = [x, stream.alloc_zeroed(LEN)?, stream.alloc_zeroed(LEN)?];
    stream.synchronize()?;
    Ok(buffers)
}

/// Work of a capture on another thread that is in progress while the capture's code returns.
struct Overlap {
    begun: Sender<()>,
}

static RETURNS: AtomicBool = AtomicBool::new(false);

impl Overlap {
    /// Called by that thread: returns some time after the capture's code has returned.
    fn meet(self) {
        self.begun.send(()).expect("the capture waits");
        while !RETURNS.load(Ordering::Acquire) {
            thread::yield_now();
        }
        (0..1000).for_each(|_| thread::yield_now());
    }

    /// Runs `capture`, passing it a function for the code that is captured. That function runs `work` on
    /// another thread, and returns while `work` is in progress.
    fn run<R>(
        capture: impl FnOnce(&dyn Fn(&Stream) -> Result<()>) -> R,
        work: impl FnOnce(&Stream, Self) -> Result<()> + Send,
    ) -> R {
        RETURNS.store(false, Ordering::Release);
        let work = std::cell::Cell::new(Some(work));
        thread::scope(|scope| {
            capture(&|captured| {
                let (work, captured) = (work.take().expect("called once"), captured.clone());
                let (begun, has_begun) = channel();
                scope.spawn(move || work(&captured, Self { begun }).expect("it is captured"));
                has_begun.recv().expect("it begins");
                RETURNS.store(true, Ordering::Release);
                Ok(())
            })
        })
    }
}

gpu_test! {
    needs 1;
    fn s45_a_capture_ends_after_library_work_of_another_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [x, mut y, _] = buffers(&stream)?;
        let graph = Overlap::run(
            |code| Graph::capture(&context, code),
            |captured, overlap| {
                let (from, to) = (x.as_raw(), y.as_raw());
                let work = captured.work().read(&x).write(&mut y);
                let enqueue = |raw: CUstream| {
                    overlap.meet();
                    raw_copy(raw, to, from);
                };
                // SAFETY: the copy reads and writes the named buffers.
                unsafe { work.enqueue(enqueue) }
            },
        )?;
        assert_eq!(graph.node_count()?, 1);
        assert_eq!(stream.download_vec(&y)?, [0; LEN], "it was captured, and did not run");
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [4; LEN]);
        Ok(())
    }
}

/// Returns a body for another thread, which fills `x`.
fn body_elsewhere(x: &mut DeviceBuffer<u32>) -> impl FnOnce(&Stream, Overlap) -> Result<()> + Send {
    move |captured, overlap| {
        Condition::new(captured, 1)?.if_then(captured, |body| {
            overlap.meet();
            body.fill(x, 1)
        })
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn s45_a_capture_ends_after_a_body_of_another_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, ..] = buffers(&stream)?;
        let graph = Overlap::run(|code| Graph::capture(&context, code), body_elsewhere(&mut x))?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn s45_an_extension_ends_after_a_body_of_another_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, ..] = buffers(&stream)?;
        let mut graph = Graph::capture(&context, |_| Ok(()))?;
        Overlap::run(|code| graph.extend(code), body_elsewhere(&mut x))?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_library_work_is_captured_alone() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [x, mut y, mut z] = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |captured| {
            let (from, to) = (x.as_raw(), y.as_raw());
            let work = captured.work().read(&x).write(&mut y);
            let enqueue = |raw: CUstream| {
                let here = captured.fill(&mut z, 1);
                let there = thread::scope(|scope| {
                    scope.spawn(|| captured.fill(&mut z, 1)).join().expect("no panic")
                });
                raw_copy(raw, to, from);
                [here, there]
            };
            // SAFETY: the copy reads and writes the named buffers.
            for refused in unsafe { work.enqueue(enqueue) }? {
                assert!(refusal(refused).contains("work of another library is being captured"));
            }
            captured.copy(&y, &mut z)
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&z)?, [4; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_library_work_is_captured_without_steps_beside_it() -> Result<()> {
        let context = context()?;
        let graph = Graph::build(&context, |builder| {
            let mut given = None;
            builder.add(|stream| {
                given = Some(stream.clone());
                Ok(())
            })?;
            let stream = given.expect("given above");
            let work = stream.work();
            // SAFETY: nothing is enqueued.
            let added = unsafe { work.enqueue(|_stream| builder.add(|_stream| Ok(()))) }?;
            assert!(refusal(added).contains("work of another library is being captured"));
            Ok(())
        })?;
        graph.instantiate()?.launch(&context.create_stream()?)
    }
}

gpu_test! {
    needs 1;
    fn l_library_work_that_panics_in_a_capture_is_noted() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y, mut z] = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |captured| {
            let (from, to) = (x.as_raw(), y.as_raw());
            let work = captured.work().read(&x).write(&mut y);
            let enqueue = |raw: CUstream| {
                raw_copy(raw, to, from);
                panic!("on purpose");
            };
            // SAFETY: the copy reads and writes the named buffers.
            let panicked = catch_unwind(AssertUnwindSafe(|| unsafe { work.enqueue(enqueue) }));
            assert!(panicked.is_err());
            captured.copy(&y, &mut z)?;
            captured.fill(&mut x, 9)
        })?;
        assert_eq!(graph.edge_count()?, 2, "the copy and the fill come after the library's copy");
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&z)?, [4; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_an_operation_between_two_notes_hides_neither_side() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, y, mut z] = buffers(&stream)?;
        let mut other = stream.alloc_zeroed::<u32>(LEN)?;
        let graph = Graph::capture_by_access(&context, |captured| {
            let note = || {
                // SAFETY: only the copy uses the buffers until the second call, on this stream.
                unsafe { x.note_use(captured, Access::Read) }?;
                // SAFETY: as above.
                unsafe { y.note_use(captured, Access::Write) }
            };
            captured.fill(&mut z, 7)?;
            note()?;
            captured.fill(&mut other, 1)?;
            raw_copy(captured.as_raw(), y.as_raw(), x.as_raw());
            captured.fill(&mut other, 2)?;
            note()?;
            captured.copy(&y, &mut z)
        })?;
        // The edges are those of the noted work with what was captured between, of the fills of `other`, and
        // of the last copy.
        let mut edges = graph.edges()?;
        edges.sort_unstable();
        assert_eq!(edges, [(0, 4), (1, 2), (1, 3), (2, 3), (3, 4)]);
        let mut exec = graph.instantiate()?;
        for value in [4, 5, 6] {
            stream.fill(&mut x, value)?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&z)?, [value; LEN]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_library_work_without_memory_is_a_barrier() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y, z] = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |captured| {
            captured.fill(&mut x, 1)?;
            let fill = |raw| {
                // SAFETY: nothing else uses the memory.
                unsafe { symbol::cuMemsetD8Async(z.as_raw(), 1, 4, raw) }
            };
            // SAFETY: as above.
            let filled = unsafe { captured.work().enqueue(fill) }?;
            assert_eq!(filled, CUDA_SUCCESS);
            captured.launch_host_func_each(|| ())?;
            captured.fill(&mut y, 2)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (4, 3), "a chain");
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_condition_belongs_to_the_graph_that_it_was_made_in() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, ..] = buffers(&stream)?;
        let graph = Graph::capture(&context, |captured| {
            let mut inner = None;
            Condition::new(captured, 1)?.if_then(captured, |body| {
                inner = Some(Condition::new(body, 1)?);
                Ok(())
            })?;
            let inner = inner.expect("made");
            let refused = inner.if_then(captured, |body| body.fill(&mut x, 7));
            assert!(refusal(refused).contains("of what runs on another condition"));
            Ok(())
        });
        // No operation uses the inner condition.
        assert!(refusal(graph).contains("no operation depends on a condition"));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_an_extension_with_an_unused_condition_gives_the_graph_up() -> Result<()> {
        let context = context()?;
        let mut graph = Graph::capture(&context, |_| Ok(()))?;
        let extended = graph.extend(|captured| Condition::new(captured, 1).map(drop));
        assert!(refusal(extended).contains("no operation depends on a condition"));
        assert!(matches!(graph.instantiate(), Err(Error::GivenUp { .. })));
        let mut graph = Graph::capture(&context, |_| Ok(()))?;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            graph.extend(|captured| {
                Condition::new(captured, 1)?;
                panic!("on purpose")
            })
        }));
        panicked.expect_err("the work panics");
        assert!(matches!(graph.instantiate(), Err(Error::GivenUp { .. })));
        Ok(())
    }
}
