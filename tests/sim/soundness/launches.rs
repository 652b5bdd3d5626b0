//! Launches of one executable on several streams, and what is dropped with a graph.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use cuda_core::{Graph, PinnedBuffer, PinnedPool, drops};
use cuda_sim::Mode;
use cuda_sys::{CUDA_SUCCESS, cuGraphCreate};
use support::{OnDrop, one_stream, refusal, stall, two_streams};

use super::clean;

/// CUDA orders each launch of an executable behind the previous one, whatever the stream.
#[test]
fn s41_what_came_before_a_launch_behind_a_late_one_does_not_wait_for_it() {
    clean(|_session| {
        let (context, one, two) = two_streams()?;
        let (mut x, mut y) = (one.alloc_zeroed::<u32>(64)?, two.alloc_zeroed::<u32>(64)?);
        let mut host = PinnedBuffer::<u32>::new(&context, 64)?;
        let mut z = one.alloc_zeroed::<u32>(64)?;
        let other = Graph::capture(&context, |stream| stream.fill(&mut z, 2))?;
        let mut exec = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?.instantiate()?;
        for updated in [false, true] {
            let (go, gone) = mpsc::channel::<()>();
            one.launch_host_func(move || _ = gone.recv())?;
            exec.launch(&one)?;
            if updated {
                exec.update(&other)?;
            }
            two.fill(&mut y, 3)?;
            two.download(&y, &mut host)?;
            exec.launch(&two)?;
            assert_eq!(host.as_slice()?, [3; 64]); // would wait for ever after the launch
            drop(go);
            two.synchronize()?;
        }
        Ok(())
    });
}

#[test]
fn l20_an_executable_goes_without_waiting_for_pinned_memory() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let pool = PinnedPool::shared();
        let host = pool.alloc::<u32>(&context, 100)?;
        let graph = Graph::capture(&context, |stream| stream.upload(&host, &mut x))?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.lend(&host).launch(&stream)?;
        drop((graph, host));
        drop(exec); // the launch, and the free after it, are pending
        stalled.release();
        stream.synchronize()?;
        drops::flush();
        Ok(())
    });
}

/// An owner for a graph, which records its drop.
fn owner(gone: Arc<AtomicBool>) -> OnDrop<impl FnMut() + Send + Sync> {
    OnDrop(move || gone.store(true, Ordering::SeqCst))
}

/// A host function must not destroy the graph, so it must not drop what the graph needs either.
#[test]
fn s31_a_graph_that_a_host_function_drops_goes_before_its_owner() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle, to a local that outlives it; flags must be zero.
        assert_eq!(unsafe { cuGraphCreate(&mut raw, 0) }, CUDA_SUCCESS);
        let gone = Arc::new(AtomicBool::new(false));
        let owner = owner(gone.clone());
        // SAFETY: the graph is live and has no nodes, and no other code uses it.
        let graph = unsafe { Graph::from_raw(raw, &context, owner) }?;
        let destroy = session.hold("cuGraphDestroy");
        stream.launch_host_func(move || drop(graph))?;
        stream.synchronize()?;
        destroy.await_call();
        assert!(!gone.load(Ordering::SeqCst), "it is in front of the graph");
        drop(destroy);
        drops::flush();
        assert!(gone.load(Ordering::SeqCst));
        Ok(())
    });
}

/// The same for an executable whose last launch has completed, which no code has queried.
#[test]
fn s31_an_executable_that_a_host_function_drops_goes_before_what_it_keeps() {
    clean(|session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let mut host = PinnedBuffer::<u32>::new(&context, 64)?;
        let gone = Arc::new(AtomicBool::new(false));
        let owner = owner(gone.clone());
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.launch_host_func_each(move || _ = &owner)
        })?;
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.launch(&stream)?;
        // Records an event behind the launch, which is complete when the host function runs.
        other.download(&x, &mut host)?;
        let destroy = session.hold("cuGraphExecDestroy");
        other.launch_host_func(move || drop(exec))?;
        other.synchronize()?;
        destroy.await_call();
        assert!(!gone.load(Ordering::SeqCst), "it is in front of the executable");
        drop(destroy);
        drops::flush();
        assert!(gone.load(Ordering::SeqCst));
        Ok(())
    });
}

/// An executable counts until its destruction, which a host function defers.
#[test]
fn s31_an_executable_that_a_host_function_drops_is_there_until_it_is_destroyed() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let graph = Graph::capture(&context, |stream| {
            let mut x = stream.alloc_in_graph::<u32>(9)?;
            stream.fill(&mut x, 1)
        })?;
        let exec = graph.instantiate()?;
        let destroy = session.hold("cuGraphExecDestroy");
        stream.launch_host_func(move || drop(exec))?;
        stream.synchronize()?;
        destroy.await_call();
        assert!(refusal(graph.instantiate()).contains("one executable"));
        drop(destroy);
        drops::flush();
        graph.instantiate().map(drop)
    });
}

/// An executable is not changed to one that could never be launched.
#[test]
fn s50_an_update_to_memory_that_was_dropped_is_refused() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let x = stream.alloc_zeroed::<u32>(64)?;
        let [mut kept, mut dropped] =
            [PinnedBuffer::<u32>::new(&context, 64)?, PinnedBuffer::<u32>::new(&context, 64)?];
        let first = Graph::capture(&context, |stream| stream.download(&x, &mut kept))?;
        let second = Graph::capture(&context, |stream| stream.download(&x, &mut dropped))?;
        let mut exec = first.instantiate()?;
        drop(dropped);
        assert!(refusal(exec.update(&second)).contains("was dropped: keep it"));
        exec.lend_mut(&mut kept).launch(&stream)?;
        assert_eq!(kept.as_slice()?, [0; 64]);
        Ok(())
    });
}

/// The driver is not asked how far the stream is, and no event before such a launch may be replaced.
#[test]
fn s28_many_launches_that_may_take_long_and_few_events() {
    clean(|session| {
        session.set_mode(Mode::Eager);
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let (tell, told) = mpsc::channel();
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(move || _ = tell.send(()))
        })?;
        let mut exec = graph.instantiate()?;
        for step in 0..if cfg!(miri) { 100 } else { 500 } {
            stream.fill(&mut x, step)?;
            exec.launch(&stream)?;
            told.recv().expect("the graph sends");
        }
        let created = session.calls("cuEventCreate");
        assert!(created < 50, "{created} events");
        stream.synchronize()
    });
}

#[test]
fn s28_uploads_on_streams_that_are_gone_leave_no_event() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(8)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let mut exec = graph.instantiate()?;
        for _ in 0..100 {
            exec.upload(&context.create_stream()?)?;
        }
        let (made, gone) = (session.calls("cuEventCreate"), session.calls("cuEventDestroy_v2"));
        assert!(made - gone < 10, "{made} events, {gone} destroyed");
        exec.launch(&stream)
    });
}
