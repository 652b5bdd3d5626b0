//! Signals that are dropped, forgotten, shared and used again: S02, S17, S23, S41.

use std::collections::HashSet;

use cuda_core::{Context, ContextFlags, Device, Result, Signal, WaitValue};

use super::{clean, device, leaking, pinned};

#[test]
fn s02_the_place_of_a_signal_is_used_again_when_its_work_is_done() {
    clean(|session| {
        let stream = device().create_stream()?;
        let signal = Signal::new(device(), 0u32)?;
        let place = signal.as_raw();
        stream.write_signal(&signal, 1)?;
        drop(signal);
        let taken: Vec<_> = (0..70)
            .map(|_| Signal::new(device(), 0u32))
            .collect::<Result<_>>()?;
        assert!(taken.iter().all(|other| other.as_raw() != place));
        let distinct: HashSet<_> = taken.iter().map(Signal::as_raw).collect();
        assert_eq!(distinct.len(), taken.len());
        stream.synchronize()?;
        assert!(
            taken.iter().all(|other| other.get() == 0),
            "nobody wrote there"
        );
        drop(taken);
        cuda_core::trim_staging()?;
        assert_eq!(
            session.calls("cuMemHostAlloc"),
            session.calls("cuMemFreeHost")
        );
        Ok(())
    });
}

#[test]
fn s02_a_wait_that_nobody_can_end_keeps_its_place_and_hangs_nobody() {
    leaking(|session| {
        let stream = device().create_stream()?;
        let signal = Signal::new(device(), 0u32)?;
        let place = signal.as_raw();
        stream.wait_signal(&signal, WaitValue::Eq(1))?;
        drop((signal, stream));
        for _ in 0..10 {
            let others: Vec<_> = (0..64)
                .map(|_| Signal::new(device(), 1u32))
                .collect::<Result<_>>()?;
            assert!(others.iter().all(|other| other.as_raw() != place));
        }
        assert_ne!(session.pending_ops(), 0, "it waits still");
        // Only a test can end that: the place is still where it was.
        let waker = device().create_stream()?;
        // SAFETY: the place is in pinned memory that is not given back while work uses it.
        support::check("cuStreamWriteValue32", unsafe {
            cuda_sys::symbol::cuStreamWriteValue32_v2(waker.as_raw(), place, 1, 0)
        });
        waker.synchronize()
    });
}

#[test]
fn s17_a_signal_and_a_context_that_goes_first() {
    clean(|_| {
        let created = Context::create(device(), ContextFlags::default())?;
        let stream = created.create_stream()?;
        let signal = Signal::new(device(), 0u32)?;
        stream.write_signal(&signal, 1)?;
        drop((stream, created));
        assert!(signal.get() <= 1);
        drop(signal);
        Ok(())
    });
}

#[test]
fn s23_a_forgotten_signal_is_leaked_and_no_more() {
    leaking(|_| {
        let stream = device().create_stream()?;
        let signal = Signal::new(device(), 0u32)?;
        stream.write_signal(&signal, 1)?;
        std::mem::forget(signal);
        stream.synchronize()
    });
}

#[test]
fn s41_another_stream_does_not_wait_for_the_signal() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = a.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        a.upload(&host, &mut buffer)?;
        let signal = Signal::new(device(), 0u32)?;
        a.wait_signal(&signal, WaitValue::Eq(1))?;
        for _ in 0..20 {
            // Later events must not take the place of the one before the wait.
            a.checkpoint()?;
            a.fill(&mut a.alloc::<u32>(64)?, 1)?;
        }
        host.as_mut_slice()?.fill(9);
        let mut back = [0; 64];
        b.download_to(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        signal.set(1);
        a.synchronize()
    });
}

/// The host's side of a signal is a value like any other that threads share.
#[test]
fn s15_threads_hand_memory_over_by_a_signal() {
    clean(|_| {
        let (one, two) = (device().create_stream()?, Device::get(1)?.create_stream()?);
        let (ping, pong) = (Signal::new(device(), 0u32)?, Signal::new(device(), 0u32)?);
        let rounds = if cfg!(miri) { 3 } else { 20 };
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| -> Result<()> {
                for round in 1..=rounds {
                    two.wait_signal(&ping, WaitValue::Geq(round))?;
                    two.write_signal(&pong, round)?;
                    two.synchronize()?;
                }
                Ok(())
            });
            for round in 1..=rounds {
                ping.set(round);
                one.wait_signal(&pong, WaitValue::Geq(round))?;
                one.synchronize()?;
                assert!(pong.get() >= round);
            }
            answer.join().expect("no assertion failed")
        })
    });
}
