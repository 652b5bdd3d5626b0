//! S23: forgotten values leak, with no worse effect.

use std::mem;

use cuda_core::{DeviceSliceMut, Event, EventFlags, Graph, Result};
use cuda_sim::LeakKind;
use support::{context, refusal, stall};

use super::{device, leaking, pinned, primary};

fn kinds(session: &cuda_sim::Session) -> Vec<LeakKind> {
    let mut kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn s23_forgotten_buffers() {
    leaking(|session| {
        let stream = device().create_stream()?;
        let other = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        other.upload(&host, &mut buffer)?;
        other.download(&buffer, &mut host)?;
        mem::forget(buffer);
        mem::forget(host);
        drop((other, stream));
        session.settle();
        assert_eq!(
            kinds(session),
            [LeakKind::Stream, LeakKind::Event, LeakKind::Device, LeakKind::Pinned]
        );
        Ok(())
    });
}

#[test]
fn s23_forgotten_views() {
    leaking(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = a.alloc_zeroed::<u32>(64)?;
        {
            let (mut head, mut tail) = buffer.split_at_mut(32)?;
            a.fill(&mut head, 1)?;
            b.fill(&mut tail, 2)?;
            // The soundness of a view must not depend on its destructor.
            const { assert!(!mem::needs_drop::<DeviceSliceMut<'static, u32>>()) };
        }
        let mut back = [0; 64];
        a.download(&buffer, &mut back)?;
        assert_eq!((back[0], back[63]), (1, 2));
        Ok(())
    });
}

#[test]
fn s23_forgotten_guards() {
    leaking(|_| {
        mem::forget(device().enter()?);
        assert_eq!(context::current(), context::primary(0));
        let guard = cuda_core::Device::get(1)?.enter()?;
        guard.restore()?;
        assert_eq!(context::current(), context::primary(0));
        context::set_current(std::ptr::null_mut());
        Ok(())
    });
}

#[test]
fn s23_forgotten_streams_and_events() {
    leaking(|_| {
        let stream = device().create_stream()?;
        let other = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let event = Event::new(&primary(), EventFlags::DEFAULT)?;
        event.record(&stream)?;
        mem::forget(stream);
        mem::forget(event);
        let mut back = [0; 64];
        other.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// If a scope's wait never happens, the stack frame of its slices may end before the copies have run: they
/// must then write only to the library's own memory.
#[test]
fn s23_a_scope_that_never_waits() {
    leaking(|session| {
        fn give_up(
            stream: &cuda_core::Stream,
            buffer: &cuda_core::DeviceBuffer<u32>,
        ) -> Result<()> {
            let mut back = [1; 64];
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                stream.scope(|scope| -> Result<()> {
                    scope.download(buffer, &mut back)?;
                    std::panic::panic_any(0)
                })
            }));
            assert!(unwound.is_err());
            assert_eq!(back, [1; 64]);
            Ok(())
        }
        let stream = device().create_stream()?;
        let buffer = stream.alloc_zeroed::<u32>(64)?;
        give_up(&stream, &buffer)?;
        assert!(session.pending_ops() > 0, "the copy has not run yet");
        stream.synchronize()
    });
}

/// Lent memory can be used at once: a launch that never begins has none.
#[test]
fn s23_forgotten_lent_launches() {
    leaking(|session| {
        let stream = device().create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        let graph = Graph::capture(&primary(), |stream| {
            stream.fill(&mut x, 9)?;
            stream.download(&x, &mut host)
        })?;
        let mut exec = graph.instantiate()?;
        mem::forget(exec.lend_mut(&mut host));
        assert_eq!(host.as_slice()?, [7; 64], "nothing was launched");
        host.as_mut_slice()?.fill(8);
        assert!(refusal(exec.launch(&stream)).contains("`lend_mut`"), "lent to no other launch");
        exec.lend_mut(&mut host).launch(&stream)?;
        assert_eq!(host.as_slice()?, [9; 64]);
        drop((exec, graph));
        session.settle();
        Ok(())
    });
}

/// Its launches continue, ordered with other work, and what they use is kept permanently.
#[test]
fn s23_forgotten_executables() {
    leaking(|session| {
        let [stream, other] = [device().create_stream()?, device().create_stream()?];
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        let mut sink = other.alloc_zeroed::<u32>(64)?;
        let address = x.as_raw();
        let graph = Graph::capture(&primary(), |stream| {
            stream.fill(&mut x, 9)?;
            stream.download(&x, &mut host)
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.lend_mut(&mut host).launch(&stream)?;
        mem::forget(exec);
        drop(graph);
        assert!(host.try_as_slice()?.is_none(), "the launch is pending");
        other.copy(&x, &mut sink)?; // after the launch
        drop(x);
        let poison = other.alloc_zeroed::<u32>(64)?;
        assert_ne!(poison.as_raw(), address, "the executable uses it");
        stalled.release();
        assert_eq!(host.as_slice()?, [9; 64]);
        assert_eq!(other.download_vec(&sink)?, [9; 64]);
        assert_eq!(other.download_vec(&poison)?, [0; 64]);
        session.settle();
        assert!(!kinds(session).is_empty(), "it was forgotten");
        Ok(())
    });
}
