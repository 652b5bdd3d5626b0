//! Executables whose operations are changed.

use cuda_core::{
    Context, Device, DeviceBuffer, Graph, GraphExec, PinnedPool, Result, Signal, Stream, WaitValue,
};
use cuda_sim::{Fault, Session};
use cuda_sys::{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_OUT_OF_MEMORY};
use support::{freed_behind_a_stall, kernels, one_stream, stall, two_streams};

use super::{clean, within};

/// A buffer at both ends of an operation, in several operations, and after a change that may have been made.
#[test]
fn s07_each_use_of_a_buffer_is_let_go_once() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = freed_behind_a_stall(|| stream.alloc_zeroed::<u32>(100))?;
        let mut y = freed_behind_a_stall(|| stream.alloc_zeroed::<u32>(100))?;
        let graph = Graph::capture(&context, |stream| {
            let (low, mut high) = x.split_at_mut(50)?;
            stream.copy(low.as_view(), &mut high)?;
            stream.fill(&mut x, 1)
        })?;
        let [copy, fill] = [graph.nodes()?[0].id(), graph.nodes()?[1].id()];
        let mut exec = graph.instantiate()?;
        let mut other = graph.instantiate()?;
        drop(graph);
        let both = |exec: &mut GraphExec, b: &mut DeviceBuffer<u32>| {
            let (low, mut high) = b.split_at_mut(50)?;
            exec.set_copy(copy, low.as_view(), &mut high)
        };
        for _ in 0..3 {
            both(&mut exec, &mut y)?;
            both(&mut exec, &mut x)?;
        }
        both(&mut exec, &mut y)?;
        let x = x.close().expect_err("the fill and the other executable").value;
        let fail = |name| session.inject(Fault::new(CUDA_ERROR_LAUNCH_FAILED).function(name));
        let mut w = freed_behind_a_stall(|| stream.alloc_zeroed::<u32>(100))?;
        fail("cuGraphExecMemsetNodeSetParams");
        exec.set_fill(fill, &mut w, 2).expect_err("made to fail");
        let x = x.close().expect_err("the fill may be either").value;
        let mut w = w.close().expect_err("the fill may be either").value;
        exec.set_fill(fill, &mut y, 2)?;
        fail("cuGraphExecMemcpyNodeSetParams");
        both(&mut exec, &mut w).expect_err("made to fail");
        let w = w.close().expect_err("the copy may be either").value;
        both(&mut exec, &mut y)?;
        w.close()?;
        let mut z = stream.alloc_zeroed::<u32>(100)?;
        both(&mut other, &mut z)?;
        other.set_fill(fill, &mut z, 7)?;
        drop(exec);
        y.close()?;
        x.close()?;
        let stalled = stall(stream.as_raw());
        other.launch(&stream)?;
        other.set_fill(fill, z.slice_mut(..10)?, 7)?;
        drop(other);
        let second = context.create_stream()?;
        second.fill(&mut z, 9)?;
        stalled.release();
        assert_eq!(second.download_vec(&z)?, [9; 100]);
        Ok(())
    });
}

#[test]
fn s02_pinned_memory_that_a_change_let_go_is_waited_for() {
    clean(|_session| {
        let (context, stream, other) = two_streams()?;
        let x = stream.alloc_zeroed::<u32>(100)?;
        let pool = PinnedPool::new(); // its buffers go without a wait
        let mut one = pool.alloc::<u32>(&context, 100)?;
        let mut two = pool.alloc::<u32>(&context, 100)?;
        one.as_mut_slice()?.fill(5);
        two.as_mut_slice()?.fill(5);
        let graph = Graph::capture(&context, |stream| stream.download(&x, &mut one))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        drop(graph);
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        exec.lend_mut(&mut one).launch(&stream)?;
        exec.set_copy(node, &x, two.slice_mut(..100)?)?;
        exec.launch(&stream).expect_err("not lent");
        exec.lend_mut(&mut one).launch(&stream).expect_err("the other");
        assert!(one.try_as_slice()?.is_none());
        exec.lend_mut(&mut two).launch(&other)?;
        assert!(two.try_as_slice()?.is_none());
        let y = stream.alloc_zeroed::<u32>(100)?;
        let third = Graph::capture(&context, |stream| stream.download(&y, &mut two))?;
        exec.set_copy(node, &x, &mut one)?;
        exec.update(&third)?;
        assert!(one.try_as_slice()?.is_none());
        assert!(two.try_as_slice()?.is_none());
        exec.launch(&stream).expect_err("not lent");
        drop(one);
        drop(exec);
        assert!(two.try_as_slice()?.is_none());
        let again = pool.alloc::<u32>(&context, 100)?;
        assert!(again.try_as_slice()?.is_some());
        stalled.release();
        assert_eq!(two.as_slice()?, [0; 100]);
        Ok(())
    });
}

#[test]
fn s07_a_node_that_a_library_works_behind_is_no_operation() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut wide = freed_behind_a_stall(|| stream.alloc::<[u32; 2]>(1000))?;
        let x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut wide, [1, 2]))?;
        let copy = graph.nodes()?.last().expect("the fill ends by a copy").id();
        // SAFETY: no work is enqueued.
        graph.extend(|s| unsafe { s.work().read(&x).enqueue(|_| ()) })?;
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.set_copy(copy, &x, &mut y)?;
        drop(wide);
        let mut poison = stream.alloc::<[u32; 2]>(1000)?;
        stream.fill(&mut poison, [5, 5])?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&poison)?, [[5, 5]; 1000]);
        Ok(())
    });
}

/// Makes a launch on another stream fail while the previous one is pending.
fn fail_on(stream: &Stream, exec: &mut GraphExec, session: &Session) -> Result<()> {
    session.inject(Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuGraphLaunch"));
    exec.launch(stream).expect_err("made to fail");
    while !stream.query()? {}
    Ok(())
}

#[test]
fn s07_a_changed_kernel_stays_loaded_after_a_launch_that_fails_elsewhere() {
    clean(|session| {
        let (context, one, two) = two_streams()?;
        let functions = [kernels::get(&context, "add_one")?, kernels::get(&context, "add_one")?];
        let mut x = one.alloc_zeroed::<u32>(100)?;
        // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
        let graph = Graph::capture(&context, |stream| unsafe {
            stream.kernel(&functions[0]).elements(100).arg(&mut x).arg(100u32).launch()
        })?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        let mut launch = one.kernel(&functions[1]).elements(100).arg(&mut x).arg(100u32);
        // SAFETY: as above.
        unsafe { exec.set_kernel(node, &mut launch) }?;
        drop((graph, launch));
        drop(functions);
        one.synchronize()?;
        let stalled = stall(one.as_raw());
        exec.launch(&one)?;
        fail_on(&two, &mut exec, session)?;
        drop(exec);
        stalled.release();
        assert_eq!(one.download_vec(&x)?, [1; 100]);
        Ok(())
    });
}

/// The work comes behind the first launch, which waits for the signal.
#[test]
fn s41_a_launch_after_one_that_fails_elsewhere_holds_up_nothing_before_it() {
    clean(|session| {
        let context = Device::get(0)?.context()?;
        let streams =
            [context.create_stream()?, context.create_stream()?, context.create_stream()?];
        let [one, two, three] = &streams;
        let go = Signal::new(&context, 0u32)?;
        let mut x = three.alloc_zeroed::<u32>(100)?;
        let mut exec = Graph::capture(&context, |_| Ok(()))?.instantiate()?;
        one.wait_signal(&go, WaitValue::Eq(1))?;
        exec.launch(one)?;
        fail_on(two, &mut exec, session)?;
        three.fill(&mut x, 1)?;
        exec.launch(three)?;
        x.synchronize()?;
        go.set(1);
        three.synchronize()
    });
}

/// Captures a graph that waits for the signal, then fills `x`, and instantiates it.
fn held(
    context: &Context,
    go: &Signal<u32>,
    x: &mut DeviceBuffer<u32>,
) -> Result<(Graph, GraphExec)> {
    let graph = Graph::capture(context, |stream| {
        stream.wait_signal(go, WaitValue::Eq(1))?;
        stream.fill(x, 1)
    })?;
    let exec = graph.instantiate()?;
    Ok((graph, exec))
}

/// The way in which an executable comes to use memory that its pending launch does not use.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Fill,
    Update,
    Enabled,
}

/// The pending launch waits for an action of this thread after its wait for the memory.
#[test]
fn l_memory_of_a_change_does_not_wait_for_a_launch_that_is_pending() {
    for change in [Change::Fill, Change::Update, Change::Enabled] {
        clean(|_session| {
            let (context, stream, other) = two_streams()?;
            let go = Signal::new(&context, 0u32)?;
            let (mut x, mut y) = (stream.alloc::<u32>(100)?, other.alloc_zeroed::<u32>(100)?);
            let (second, _) = held(&context, &go, &mut y)?;
            let own = if change == Change::Enabled { &mut y } else { &mut x };
            let (graph, mut exec) = held(&context, &go, own)?;
            let fill = graph.nodes()?[1].id();
            exec.set_enabled(fill, change != Change::Enabled)?;
            exec.launch(&stream)?;
            match change {
                Change::Fill => exec.set_fill(fill, &mut y, 3)?,
                Change::Update => exec.update(&second)?,
                Change::Enabled => exec.set_enabled(fill, true)?,
            }
            within(|| y.synchronize().expect("no launch uses it"));
            other.fill(&mut y, 5)?;
            assert_eq!(other.download_vec(&y)?, [5; 100]);
            other.write_signal(&go, 1)?;
            stream.synchronize()?;
            exec.launch(&stream)?;
            assert!(other.download_vec(&y)?.iter().all(|it| [1, 3].contains(it)));
            Ok(())
        });
    }
}

/// Another operation is changed to use more of the memory.
#[test]
fn s02_a_launch_before_a_change_to_the_same_memory_is_waited_for() {
    clean(|session| {
        let (context, stream, other) = two_streams()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let graph = Graph::capture(&context, |stream| {
            stream.fill(x.slice_mut(10..90)?, 1)?;
            stream.fill(&mut y, 2)
        })?;
        let (second, mut exec) = (graph.nodes()?[1].id(), graph.instantiate()?);
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        exec.set_fill(second, &mut x, 3)?;
        let waits = session.calls("cuStreamWaitEvent");
        other.fill(&mut x, 100)?;
        assert_eq!(session.calls("cuStreamWaitEvent"), waits + 1);
        stalled.release();
        stream.synchronize()?;
        assert_eq!(other.download_vec(&x)?, [100; 100]);
        Ok(())
    });
}
