//! The order of collectives and other work of streams.

use std::thread;

use cuda_core::nccl::{Ranks, Reduction, group};
use cuda_core::{
    Condition, Context, Device, DeviceGroup, Error, Graph, PinnedBuffer, Result, Stream,
};
use support::{Alarm, freed_behind_a_stall, gpu_test, refusal, stall};

use super::{apart, buffers, connected, devices, unblocked, values};

gpu_test! {
    needs 2, nccl;
    fn k_nccl_comes_behind_and_before_other_streams() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let both = [Ranks::init_all(&contexts)?, unblocked(&contexts)?];
        let (_, others) = devices(2)?;
        let (_, thirds) = devices(2)?;
        let mut buffers = buffers(&streams, |_| vec![0u32; 1000])?;
        for (round, ranks) in (1..).zip(both.iter().cycle().take(4)) {
            let host = PinnedBuffer::from_slice(&contexts[0], &vec![round; 1000])?;
            for (stream, buffer) in others.iter().zip(&mut buffers) {
                stream.upload(&host, buffer)?;
            }
            ranks.on(&streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum)?;
            assert_eq!(values(&thirds, &buffers)?, vec![vec![2 * round; 1000]; 2]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_returns_at_once_and_keeps_its_memory() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        // Frees the memory on idle streams.
        let (_, others) = devices(2)?;
        let sources =
            freed_behind_a_stall(|| buffers(&others, |rank| vec![1 + rank as u32; 1000]))?;
        others.iter().try_for_each(|stream| stream.synchronize())?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce(&sources, &mut sums, Reduction::Sum)?;
        drop(sources);
        // These allocations may get the memory.
        drop(freed_behind_a_stall(|| buffers(&others, |_| vec![100u32; 1000]))?);
        stalled.release();
        assert_eq!(values(&streams, &sums)?, vec![vec![3; 1000]; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_operations_are_awaited() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let alarm = Alarm::new();
        // Rank 0 waits for rank 1.
        let (mut memory, mut stream) = (sums[0].ready(), streams[0].ready());
        assert!(alarm.poll(&mut memory).is_pending() && alarm.poll(&mut stream).is_pending());
        stalled.release();
        alarm.block_on(memory)?;
        alarm.block_on(stream)?;
        assert!(alarm.wakes() > 0);
        assert_eq!(values(&streams, &sums)?, vec![vec![4; 1000]; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_groups_of_any_number_in_any_order() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let (_, others) = devices(2)?;
        let pair = apart(&contexts)?;
        for count in [1, 4, 5, 12] {
            let pairs = (0..count).map(|_| buffers(&streams, |rank| vec![1 + rank as u32; 10]));
            let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
            // The streams are not the home streams of the memory, which they wait for.
            group(|group| {
                for (at, buffers) in pairs.iter_mut().enumerate() {
                    let mut parts: Vec<_> = buffers.iter_mut().enumerate().collect();
                    // The order of the ranks changes, but not that of each rank's operations.
                    if at % 2 == 0 {
                        parts.reverse();
                    }
                    for (rank, part) in parts {
                        let on = group.on(&pair[rank], &others[rank])?;
                        on.all_reduce_in_place(part, Reduction::Sum)?;
                    }
                }
                Ok(())
            })?;
            for sums in &pairs {
                assert_eq!(values(&streams, sums)?, [[3; 10]; 2]);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn l_nccl_in_graphs() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        // SAFETY: both ranks enqueue the same operations.
        let pair = unsafe { unblocked(&contexts)?.into_communicators() };
        let mut buffers = buffers(&streams, |_| vec![1u32; 100])?;
        // NCCL connects the ranks at the first operation.
        let graphs = std::thread::scope(|scope| {
            let threads: Vec<_> = pair.iter().zip(&streams).zip(&mut buffers).map(
                |((rank, stream), buffer)| scope.spawn(move || {
                    rank.on(stream)?.all_reduce_in_place(&mut *buffer, Reduction::Sum)?;
                    stream.synchronize()?;
                    Graph::capture(stream.context(), |captured| {
                        rank.on(captured)?.all_reduce_in_place(buffer, Reduction::Sum)
                    })
                }),
            ).collect();
            let graphs = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            graphs.collect::<Result<Vec<_>>>()
        })?;
        // The graphs keep the communicator alive.
        drop(pair);
        let mut execs = graphs.iter().map(Graph::instantiate).collect::<Result<Vec<_>>>()?;
        for _ in 0..2 {
            execs.iter_mut().zip(&streams).try_for_each(|(exec, stream)| exec.launch(stream))?;
        }
        assert_eq!(values(&streams, &buffers)?, vec![vec![8; 100]; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl, cuda_12_4;
    fn l_nccl_is_not_in_the_body_of_a_condition() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let alone = apart(&contexts)?;
        let mut sum = streams[0].upload_new(&[5u32; 10])?;
        let graph = Graph::capture(&contexts[0], |captured| {
            Condition::new(captured, 1)?.if_then(captured, |body| {
                let one = alone[0].on(body)?.all_reduce_in_place(&mut sum, Reduction::Sum);
                assert!(matches!(one, Err(Error::NotCapturable { op: "ncclAllReduce", .. })), "{one:?}");
                let several = group(|group| group.on(&alone[0], body)?.all_reduce_in_place(&mut sum, Reduction::Sum));
                assert!(matches!(several, Err(Error::NotCapturable { op: "ncclAllReduce", .. })), "{several:?}");
                let mut none = streams[0].alloc::<u32>(0)?;
                let none = alone[0].on(body)?.all_reduce_in_place(&mut none, Reduction::Sum);
                assert!(matches!(none, Err(Error::NotCapturable { op: "ncclAllReduce", .. })), "{none:?}");
                body.fill(&mut sum, 7)
            })
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        assert_eq!(streams[0].download_vec(&sum)?, [7; 10]);
        alone[0].on(&streams[0])?.all_reduce_in_place(&mut sum, Reduction::Sum)
    }
}

gpu_test! {
    needs 2, nccl;
    fn l_nccl_connects_ranks_by_a_captured_operation() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut buffers = buffers(&streams, |rank| vec![1 + rank as u32; 100])?;
        let graph = Graph::capture(&contexts, |on| {
            ranks.on(on)?.all_reduce_in_place(&mut buffers, Reduction::Sum)
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&streams[0])?;
        exec.launch(&streams[0])?;
        assert_eq!(values(&streams, &buffers)?, vec![vec![6; 100]; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn l_nccl_of_all_ranks_in_one_graph() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut parts = buffers(&streams, |rank| vec![1 + rank as u32; 100])?;
        let mut sums = buffers(&streams, |_| vec![0u32; 100])?;
        let mut copies = buffers(&streams, |_| vec![0u32; 100])?;
        // NCCL connects the ranks at the first operation.
        ranks.on(&streams)?.all_reduce(&parts, &mut sums, Reduction::Sum)?;
        let mut work = |on: Vec<&Stream>| -> Result<()> {
            for (stream, part) in on.iter().zip(&mut parts) {
                stream.fill(part, 7)?;
            }
            ranks.on(on.clone())?.all_reduce(&parts, &mut sums, Reduction::Sum)?;
            for ((stream, sum), copy) in on.iter().zip(&sums).zip(&mut copies) {
                stream.copy(sum, copy)?;
            }
            // Each rank has two operations.
            let (lows, highs): (Vec<_>, Vec<_>) =
                copies.iter_mut().map(|copy| copy.split_at_mut(50)).collect::<Result<Vec<_>>>()?.into_iter().unzip();
            group(|group| {
                group.on_ranks(&ranks, on.clone())?.all_reduce_in_place(lows, Reduction::Sum)?;
                group.on_ranks(&ranks, on.clone())?.all_reduce_in_place(highs, Reduction::Max)
            })
        };
        let graphs =
            [Graph::capture(&contexts, &mut work)?, Graph::capture_by_access(&contexts, &mut work)?];
        assert!(graphs.iter().all(|graph| graph.node_count().is_ok_and(|count| count >= 8)));
        let mut execs = graphs.iter().map(Graph::instantiate).collect::<Result<Vec<_>>>()?;
        // The graphs keep the communicators alive.
        drop(ranks);
        for round in 0..4 {
            for buffer in parts.iter_mut().zip(&streams).chain(copies.iter_mut().zip(&streams)) {
                buffer.1.fill(buffer.0, round)?;
            }
            execs[round as usize % 2].launch(&streams[round as usize / 2])?;
            assert_eq!(values(&streams, &sums)?, vec![vec![14; 100]; 2]);
            let expected = [[28; 50], [14; 50]].concat();
            assert_eq!(values(&streams, &copies)?, vec![expected; 2]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn l08_nccl_of_ranks_that_are_not_captured_together() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |rank| vec![1 + rank as u32; 100])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let graph = Graph::capture(&contexts[0], |captured| {
            let refused = ranks.on([captured, &streams[1]])?.all_reduce_in_place(&mut sums, Reduction::Sum);
            let advice = "`Graph::capture`";
            assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(advice)), "{refused:?}");
            captured.fill(&mut sums[0], 5)
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        assert_eq!(values(&streams, &sums)?, [[5; 100], [3; 100]]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_groups_of_devices() -> Result<()> {
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let streams = group.streams();
        let parts = buffers(streams, |rank| vec![1 + rank as u32, 10])?;
        let mut whole = group.alloc::<u32>(4)?;
        group.all_gather(&parts, &mut whole)?;
        assert_eq!(values(streams, &whole)?, [[1, 10, 2, 10]; 2]);
        let mut sums = group.alloc::<u32>(2)?;
        group.all_reduce(&parts, &mut sums, Reduction::Sum)?;
        group.all_reduce_in_place(&mut sums, Reduction::Max)?;
        assert_eq!(values(streams, &sums)?, [[3, 20]; 2]);
        let mut shares = group.alloc::<u32>(2)?;
        group.reduce_scatter(&whole, &mut shares, Reduction::Sum)?;
        assert_eq!(values(streams, &shares)?, [[2, 20], [4, 20]]);
        // Operations for which the group has no function, on element types that its functions do not accept.
        let mut flags = buffers(streams, |rank| vec![[u8::from(rank == 1); 3]; 2])?;
        group.on_ranks(|ranks| ranks.broadcast_in_place(&mut flags, 1))?;
        assert_eq!(streams[0].download_vec(&flags[0])?, [[1; 3]; 2]);
        let mut most = streams[1].alloc::<u32>(2)?;
        group.on_ranks(|ranks| ranks.reduce(&shares, &mut most, 1, Reduction::Max))?;
        assert_eq!(streams[1].download_vec(&most)?, [4, 20]);
        // NCCL has one rank for each device.
        let twice = DeviceGroup::new([Device::get(0)?, Device::get(0)?])?;
        let mut two = twice.alloc_zeroed::<u32>(1)?;
        let refused = twice.all_reduce_in_place(&mut two, Reduction::Sum);
        assert!(refusal(refused).contains("twice"));
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_threads_call_and_launch_beside_each_other() -> Result<()> {
        const ROUNDS: u32 = 100;
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 1000])?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            for _ in 0..3 {
                ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Max)?;
            }
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        thread::scope(|scope| {
            let (ranks, contexts) = (&ranks, &contexts);
            let others = [0, 1].map(|value| {
                scope.spawn(move || -> Result<()> {
                    let streams: Vec<_> =
                        contexts.iter().map(Context::create_stream).collect::<Result<_>>()?;
                    let mut sums = buffers(&streams, |rank| vec![value + rank as u32; 100])?;
                    for _ in 0..ROUNDS {
                        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Max)?;
                    }
                    assert_eq!(values(&streams, &sums)?, vec![vec![value + 1; 100]; 2]);
                    Ok(())
                })
            });
            (0..ROUNDS).try_for_each(|_| exec.launch(&streams[0]))?;
            others.into_iter().try_for_each(|other| other.join().expect("no panic"))
        })?;
        assert_eq!(values(&streams, &sums)?, vec![vec![1; 1000]; 2]);
        Ok(())
    }
}
