//! Which streams wait for which others when groups copy.

use std::thread;

use cuda_core::{Device, Result};
use support::{gpu_test, stall};

use super::{all, bytes_of, filled, hold, pinned};
use crate::forms::{contents, same, scaled, varied};

gpu_test! {
    needs 2;
    fn j11_groups_are_ordered_by_the_buffers() -> Result<()> {
        let group = all()?;
        group.enable_all_peers()?;
        let count = group.len();
        let len = scaled(32 << 20, 1 << 20, 900) / count * count;
        let mut here = group.alloc::<u8>(len)?;
        let mut there = group.alloc::<u8>(len)?;
        let mut parts = group.alloc::<u8>(len)?;
        for round in 0..4_u8 {
            // The streams belong to the caller; the group does not know them.
            for (rank, buffer) in here.iter_mut().enumerate() {
                let stream = group.streams()[rank].device().create_stream()?;
                stream.fill(buffer, round * 50 + rank as u8)?;
            }
            group.rotate(&here, &mut there, 1)?;
            group.all_to_all(&there, &mut parts)?;
            // Overwrites at once the sources of the copies above.
            group.broadcast_in_place(&mut here, count - 1)?;
            for (buffer, stream) in there.iter_mut().zip(group.streams()) {
                stream.fill(buffer, 0xFF)?;
            }
            let last = round * 50 + count as u8 - 1;
            hold(&group, &here, |_| vec![last; len], "broadcast")?;
            let before = |rank: usize| round * 50 + ((rank + count - 1) % count) as u8;
            let expected: Vec<_> = (0..count).map(|from| vec![before(from); len / count]).collect();
            let expected = expected.concat();
            hold(&group, &parts, |_| expected.clone(), "exchanged")?;
        }
        drop((here, there));
        drop(parts);
        group.disable_all_peers()
    }
}

gpu_test! {
    needs 1;
    fn s02_everything_is_dropped_under_way() -> Result<()> {
        let len = scaled(64 << 20, 3 << 20, 100_000);
        for _ in 0..3 {
            let group = all()?;
            let mut sources = group.alloc::<u8>(len)?;
            let mut destinations = group.alloc::<u8>(len)?;
            group.upload_all(&vec![7; len], &mut sources)?;
            group.rotate(&sources, &mut destinations, 1)?;
            group.broadcast_in_place(&mut destinations, 0)?;
            let mut host = pinned(&group, &vec![0; len])?;
            let home = Device::get(0)?.create_stream()?;
            home.download(&destinations[0], &mut host)?;
            drop(sources);
            drop(group);
            drop(destinations);
            same(host.as_slice()?, &vec![7; len], "the bytes before the overwrite");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn neighbours_do_not_wait_for_each_other() -> Result<()> {
        let group = all()?;
        let count = group.len();
        let first = &group.streams()[0];
        let mut here = filled(&group, 1000)?;
        let mut there = group.alloc_zeroed::<u8>(1000)?;
        // A first round, so that nothing is loaded after the stall: loading would wait for it.
        group.rotate(&here, &mut there, 1)?;
        group.rotate(&there, &mut here, count - 1)?;
        group.synchronize()?;
        hold(&group, &here, |rank| bytes_of(rank, 1000), "there and back")?;

        group.rotate(&here, &mut there, 1)?;
        let stalled = stall(first.as_raw());
        // The first member's elements are replaced after the stall, so its copy waits. Its neighbour's copy
        // reads what the first member's earlier copy wrote, before the stall.
        first.fill(&mut there[0], 9)?;
        group.rotate(&there, &mut here, 1)?;
        for (rank, buffer) in here.iter().enumerate().filter(|(rank, _)| *rank != 1) {
            let stream = buffer.device().create_stream()?;
            let from = (rank + 2 * count - 2) % count;
            same(&contents(&stream, buffer)?, &bytes_of(from, 1000), "beside the stall");
        }
        stalled.release();
        same(&contents(&group.streams()[1], &here[1])?, &[9; 1000], "behind it");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn borrowed_slices_do_not_wait_for_a_busy_device() -> Result<()> {
        const LEN: usize = 100_000;
        let group = all()?;
        let last = group.len() - 1;
        let mut copies: Vec<_> = (0..4).map(|_| group.alloc::<u8>(LEN)).collect::<Result<_>>()?;
        // A first round, so that nothing that exists once per process is created after the stall.
        for copies in &mut copies {
            group.upload_all(&[0; LEN], copies)?;
        }
        group.synchronize()?;
        let stalled = stall(group.streams()[last].as_raw());
        for (seed, copies) in copies.iter_mut().enumerate() {
            // Chunks that the busy device has yet to read stay untouched, and others are used.
            group.upload_all(&bytes_of(seed, LEN), copies)?;
        }
        stalled.release();
        for (seed, copies) in copies.iter().enumerate() {
            hold(&group, copies, |_| bytes_of(seed, LEN), &format!("upload {seed}"))?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn n_one_group_and_many_threads() -> Result<()> {
        let group = all()?;
        let len = scaled(9 << 20, 3 << 20, 66_000);
        let rounds = scaled(6, 2, 1) as u64;
        thread::scope(|scope| {
            let group = &group;
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || -> Result<()> {
                        for round in 0..rounds {
                            let bytes = varied(thread << 8 | round, len);
                            let mut copies = group.alloc::<u8>(len)?;
                            group.upload_all(&bytes, &mut copies)?;
                            let mut next = group.alloc::<u8>(len)?;
                            group.rotate(&copies, &mut next, 1)?;
                            let mut all = vec![0; len * group.len()];
                            group.gather(&next, &mut all)?;
                            for part in all.chunks(len) {
                                same(part, &bytes, &format!("thread {thread}, round {round}"));
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no panic"))
        })
    }
}
