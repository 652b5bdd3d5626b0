//! Large borrowed slices and several devices, with chunks as small as those of `staged_large`.

use std::panic::resume_unwind;
use std::thread;

use cuda_core::{Device, DeviceBuffer, DeviceGroup, Error, Result};
use cuda_sim::{Fault, Mode};
use cuda_sys::{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_OUT_OF_MEMORY};
use support::pattern;

use crate::staged_large::{LEN, clean, clean_but_for, everywhere};

/// Creates a group of two devices, one of them twice.
fn group() -> Result<DeviceGroup> {
    let (first, second) = (Device::get(0)?, Device::get(1)?);
    DeviceGroup::new([first, second, first])
}

/// Allocates buffers that together hold [`LEN`] elements; the second holds none.
fn uneven(group: &DeviceGroup) -> Result<Vec<DeviceBuffer<u8>>> {
    let lens = [LEN - LEN / 3, 0, LEN / 3];
    let streams = group.streams().iter().zip(lens);
    streams.map(|(stream, len)| stream.alloc(len)).collect()
}

#[test]
#[cfg_attr(miri, ignore = "`staged_large` takes the same way, with one device")]
fn j_slices_go_to_all_devices_and_come_back() {
    everywhere(|_| {
        let group = group()?;
        let mut bytes = pattern(3, LEN);
        let mut copies = group.alloc::<u8>(LEN)?;
        let mut parts = uneven(&group)?;
        group.upload_all(&bytes, &mut copies)?;
        group.scatter(&bytes, &mut parts)?;
        bytes.fill(0xEE);
        let mut back = vec![0; 3 * LEN];
        group.gather(&copies, &mut back)?;
        assert!(back == pattern(3, LEN).repeat(3), "the content at the call");
        group.gather(&parts, &mut back[..LEN])?;
        assert!(back[..LEN] == pattern(3, LEN), "in parts");
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "`staged_large` takes the same way, with one device")]
fn s02_copies_that_fail_say_where_and_reach_nothing_that_follows() {
    for threads in [0, 3] {
        clean(Mode::Lazy, threads, |session| {
            let group = group()?;
            let mut copies = group.alloc::<u8>(LEN)?;
            let mut parts = uneven(&group)?;
            let (new, mut back) = (pattern(1, LEN), vec![0; LEN]);
            let calls = [
                "cuMemcpyHtoDAsync_v2",
                "cuMemcpyDtoHAsync_v2",
                "cuEventRecord",
                "cuEventSynchronize",
            ];
            for call in calls {
                for nth in 1.. {
                    let fail = || session.fail_nth(Some(call), nth, CUDA_ERROR_LAUNCH_FAILED);
                    // A chunk with a failed wait would be lost.
                    let waits = call == "cuEventSynchronize";
                    if !waits {
                        fail();
                    }
                    let uploaded = group
                        .upload_all(&new, &mut copies)
                        .and_then(|()| group.scatter(&new, &mut parts));
                    if waits {
                        group.synchronize()?;
                        fail();
                    }
                    let result = uploaded.and_then(|()| group.gather(&parts, &mut back));
                    let fired = session.fault_fired();
                    session.clear_faults();
                    match result {
                        Ok(()) => assert!(!fired, "{call} {nth} goes unnoticed"),
                        Err(Error::OnDevice { .. }) => assert!(fired, "{call} {nth}"),
                        Err(error) => panic!("{call} {nth}: {error}"),
                    }
                    for (stream, copy) in group.streams().iter().zip(&mut copies) {
                        stream.fill(copy, 8)?;
                    }
                    for (copy, stream) in copies.iter().zip(group.streams()) {
                        stream.download(copy, &mut back)?;
                        assert!(back.iter().all(|byte| *byte == 8), "{call} {nth}");
                    }
                    if !fired {
                        break;
                    }
                }
            }
            Ok(())
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "`staged_large` takes the same way, with one device")]
fn n_several_callers_of_one_group() {
    clean(Mode::Threaded { seed: 3 }, 3, |_| {
        let group = group()?;
        let caller = |number: u64| {
            let mut parts = uneven(&group)?;
            let mut back = vec![0; LEN];
            for round in 0..6 {
                let bytes = pattern(10 * number + round, LEN);
                group.scatter(&bytes, &mut parts)?;
                group.gather(&parts, &mut back)?;
                assert!(back == bytes, "caller {number}, round {round}");
            }
            Ok::<(), Error>(())
        };
        thread::scope(|scope| {
            let callers = [0, 1, 2].map(|number| scope.spawn(move || caller(number)));
            let join = |caller: thread::ScopedJoinHandle<'_, Result<()>>| {
                caller.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            callers.into_iter().try_for_each(join)
        })
    });
}

#[test]
#[cfg_attr(miri, ignore = "needs many chunks")]
fn s06_a_chunk_that_another_device_lost_fails_no_other_device() {
    clean_but_for(1, Mode::Lazy, 0, |session| {
        cuda_core::staging::trim()?;
        let here = Device::get(0)?.create_stream()?;
        let there = Device::get(1)?.create_stream()?;
        let mut buffer = here.alloc::<u8>(LEN)?;
        let mut lost = there.alloc::<u8>(LEN)?;
        let bytes = pattern(5, LEN);
        // All chunks wait for the other device, and no more can be allocated.
        there.upload(&bytes, &mut lost)?;
        let no_more = Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuMemHostAlloc");
        session.inject(no_more.from_then_on());
        session.fail_nth(Some("cuEventSynchronize"), 1, CUDA_ERROR_LAUNCH_FAILED);
        let uploaded = here.upload(&bytes, &mut buffer);
        assert!(session.fault_fired());
        session.clear_faults();
        uploaded?;
        let mut back = vec![0; LEN];
        here.download(&buffer, &mut back)?;
        assert!(back == bytes);
        Ok(())
    });
}
