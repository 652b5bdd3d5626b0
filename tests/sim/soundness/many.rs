//! Groups, with all work done as late as CUDA permits, and on a seeded schedule.

use cuda_core::{Device, DeviceGroup, Error, PinnedBuffer, Result};
use cuda_sim::{Fault, Mode, Session};

use super::clean;

const LEN: usize = if cfg!(miri) { 4 * 20 } else { 4 * 500 };

/// Makes every operation without waits in between, and checks each byte at the end.
fn everything(group: &DeviceGroup) -> Result<()> {
    let count = group.len();
    let context = group.streams()[0].context();
    let mut host = PinnedBuffer::from_slice(context, &support::pattern(1, LEN))?;
    let mut here = group.alloc::<u8>(LEN)?;
    let mut there = group.alloc::<u8>(LEN)?;
    group.upload_all(&host, &mut here)?;
    group.rotate(&here, &mut there, 1)?;
    for (rank, (stream, buffer)) in group.streams().iter().zip(&mut here).enumerate() {
        stream.fill(buffer, rank as u8)?;
    }
    let mut parts = group.alloc::<u8>(LEN)?;
    group.all_to_all(&here, &mut parts)?;
    group.broadcast_in_place(&mut here, 2)?;
    let mut shares = group.alloc_shares::<u8>(LEN)?;
    group.scatter(&host, &mut shares)?;
    host.as_mut_slice()?.fill(0xEE);
    group.gather(&shares, &mut host)?;
    drop(shares);
    let mut back = vec![0; count * LEN];
    for (buffers, expected) in [
        (&there, support::pattern(1, LEN)),
        (&parts, (0..count).flat_map(|from| vec![from as u8; LEN / count]).collect()),
        (&here, vec![2; LEN]),
    ] {
        group.gather(buffers, &mut back)?;
        back.chunks(LEN).for_each(|found| support::assert_bytes(found, &expected));
    }
    support::assert_bytes(host.as_slice()?, &support::pattern(1, LEN));
    Ok(())
}

#[test]
fn s36_every_operation_of_a_group_lazily() {
    clean(|_| everything(&DeviceGroup::all()?));
}

#[test]
fn s36_every_operation_of_a_group_on_a_schedule() {
    let seeds = if cfg!(miri) { 1 } else { 40 };
    for seed in 0..seeds {
        clean(|session| {
            session.set_mode(Mode::Threaded { seed });
            everything(&DeviceGroup::all()?)
        });
    }
}

/// A chunk that is copied to several devices is refilled only when all of them have read it.
#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn s06_a_slice_that_is_changed_while_devices_receive_it() {
    for seed in 0..4 {
        clean(|session| {
            session.set_mode(Mode::Threaded { seed });
            let group = DeviceGroup::all()?;
            let len = (9 << 20) + 1;
            let mut slice = support::pattern(seed, len);
            let mut copies = group.alloc::<u8>(len)?;
            group.upload_all(&slice, &mut copies)?;
            slice.fill(0xEE);
            for copy in &copies {
                let mut back = vec![0; len];
                copy.device().create_stream()?.download(copy, &mut back)?;
                support::assert_pattern(&back, seed);
            }
            Ok(())
        });
    }
}

/// Half of the copies were enqueued: their buffers record them for their drop, and the error names the
/// device.
#[test]
fn s02_a_copy_that_fails_leaves_the_others_marked() {
    let enqueue = |session: &Session, call: &str, nth| {
        session.inject(
            Fault::new(cuda_sys::CUDA_ERROR_INVALID_VALUE).function(call).nth(nth).takes_effect(),
        );
    };
    for nth in 1..=4 {
        clean(|session| {
            let group = DeviceGroup::all()?;
            let mut here = group.alloc_zeroed::<u8>(64)?;
            let mut there = group.alloc_zeroed::<u8>(64)?;
            group.synchronize()?;
            // A copy that is refused is repeated with its context current.
            enqueue(session, "cuMemcpyPeerAsync", nth);
            enqueue(session, "cuMemcpyPeerAsync", nth + 1);
            let failed = group.rotate(&here, &mut there, 1).expect_err("a copy fails");
            assert!(failed.to_string().starts_with(&format!("device {}: ", nth - 1)), "{failed}");
            assert_eq!(failed.code(), Some(cuda_sys::CUDA_ERROR_INVALID_VALUE));
            session.clear_faults();
            assert!(session.pending_ops() > 0, "copies are under way");
            group.rotate(&there, &mut here, 1)?;
            drop((here, there, group));
            Ok(())
        });
    }
}

#[test]
fn in_a_host_function_groups_are_refused() {
    clean(|_| {
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let mut buffers = group.alloc_zeroed::<u8>(64)?;
        let stream = Device::get(2)?.create_stream()?;
        stream.launch_host_func(move || {
            let refused = [
                Device::contexts(Device::get(0)).err(),
                group.upload_all(&[0; 64], &mut buffers).err(),
                group.upload_all(&[0; 1 << 16], &mut buffers).err(),
                group.broadcast_in_place(&mut buffers, 0).err(),
                group.gather(&buffers, &mut [0; 128]).err(),
                group.synchronize().err(),
            ];
            assert!(refused.iter().all(Option::is_some), "{refused:?}");
            drop((buffers, group));
        })?;
        stream.synchronize()?;
        cuda_core::drops::flush();
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn s31_groups_of_many_chunks_in_a_host_function() {
    /// Large enough that threads share the copy.
    const LEN: usize = 40 << 20;
    clean(|_| {
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let mut buffers = group.alloc::<u8>(LEN)?;
        let mut host = vec![1; 2 * LEN];
        let stream = group.streams()[0].clone();
        // Leaves chunks that may be idle, which a copy would query; inside a host function it must not.
        group.scatter(&host, &mut buffers)?;
        let (answer, answers) = std::sync::mpsc::channel();
        stream.launch_host_func(move || {
            let answers = [
                group.upload_all(&host[..LEN], &mut buffers),
                group.scatter(&host, &mut buffers),
                group.gather(&buffers, &mut host),
            ];
            // If the receiver is gone, the host function must not panic.
            let _ = answer.send((answers, host));
        })?;
        stream.synchronize()?;
        let (answers, host) = answers.recv().expect("the function runs");
        for answer in answers {
            assert!(matches!(answer, Err(Error::InCallback)), "{answer:?}");
        }
        assert!(host.iter().all(|byte| *byte == 1), "nothing came back");
        cuda_core::drops::flush();
        Ok(())
    });
}
