//! Memory registered with communicators.

use std::sync::mpsc;
use std::time::Duration;

use cuda_core::interop::ShareableHandle;
use cuda_core::nccl::{Ranks, Reduction, RegisteredBuffer, group};
use cuda_core::virtual_memory::{PhysicalMemory, VirtualBuffer};
use cuda_core::{Context, DeviceBuffer, Error, Graph, NcclError, Result, Stream};
use support::{gpu_test, refusal, stall};

use super::{apart, buffers, devices};

const LEN: usize = 1 << 19;

/// Creates memory of one allocation that others may map, like that of `ncclMemAlloc`.
fn memory(context: &Context) -> Result<VirtualBuffer<u32>> {
    let mut buffer = VirtualBuffer::new(context, LEN)?;
    buffer.append(PhysicalMemory::new(context, 4 * LEN, ShareableHandle::PosixFd)?)?;
    assert_eq!(buffer.len(), LEN);
    Ok(buffer)
}

/// Registers memory at each rank, filled with one value.
fn registered(ranks: &Ranks, streams: &[Stream], value: u32) -> Result<Vec<RegisteredBuffer<u32>>> {
    let mut all = Vec::new();
    for stream in streams {
        let mut buffer = memory(stream.context())?;
        // The fill is in progress while the memory is registered.
        stream.fill(&mut buffer, value)?;
        all.push(ranks.register(buffer)?);
    }
    Ok(all)
}

/// Asserts that the elements at both ends have this value.
fn hold(stream: &Stream, buffer: &RegisteredBuffer<u32>, value: u32) -> Result<()> {
    let mut seen = [[0; 100]; 2];
    stream.download(buffer.slice(..100)?, &mut seen[0])?;
    stream.download(buffer.slice(LEN - 100..)?, &mut seen[1])?;
    assert_eq!(seen, [[value; 100]; 2]);
    Ok(())
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_uses_registered_memory() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = registered(&ranks, &streams, 3)?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let mut halves = registered(&ranks, &streams, 0)?;
        let parts = halves.iter_mut().map(|it| it.slice_mut(..LEN / 2)).collect::<Result<Vec<_>>>()?;
        ranks.on(&streams)?.reduce_scatter(&sums, parts, Reduction::Sum)?;
        for ((stream, sums), halves) in streams.iter().zip(&sums).zip(&halves) {
            hold(stream, sums, 6)?;
            let mut seen = [0; 2];
            stream.download(halves.slice(LEN / 2 - 1..=LEN / 2)?, &mut seen)?;
            assert_eq!(seen, [12, 0]);
        }
        // Registers with a second communicator, too, and closes the memory rather than dropping it.
        let others = Ranks::init_all(&contexts)?;
        let mut sums = sums.into_iter().map(|it| Ok(others.register(it)?)).collect::<Result<Vec<_>>>()?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Max)?;
        others.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        streams.iter().zip(&sums).try_for_each(|(stream, sums)| hold(stream, sums, 12))?;
        for sums in sums {
            sums.close()?;
        }
        drop(halves);
        ranks.finalize()?;
        others.finalize()
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_refuses_memory_that_cannot_be_registered() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let pooled = ranks.register(streams[0].alloc_zeroed::<u8>(1 << 20)?);
        assert!(refusal(pooled.map_err(Error::from)).contains("whole pages"));
        let partial = ranks.register(contexts[0].alloc::<u8>((1 << 21) + 4096)?);
        assert!(refusal(partial.map_err(Error::from)).contains("whole pages"));
        Graph::capture(&contexts[0], |stream| {
            let inner = ranks.register(stream.alloc_in_graph::<u8>(4 << 20)?);
            assert!(refusal(inner.map_err(Error::from)).contains("whole pages"));
            Ok(())
        })?;
        let alone = apart(&contexts[..1])?;
        let far = alone[0].register(memory(&contexts[1])?).map_err(Error::from);
        assert!(matches!(far, Err(Error::WrongDevice(_))), "{far:?}");
        let single = Ranks::init_all(&contexts[..1])?;
        let far = single.register(memory(&contexts[1])?).map_err(Error::from);
        assert!(matches!(far, Err(Error::WrongContext(_))), "{far:?}");
        // Either the memory of all ranks is registered, or none.
        let mut mixed = registered(&ranks, &streams[..1], 1)?;
        let one = streams[1].alloc_zeroed::<u32>(LEN)?;
        let mut other = streams[1].alloc_zeroed::<u32>(LEN)?;
        let views = [mixed[0].as_view_mut(), other.as_view_mut()];
        let refused = ranks.on(&streams)?.all_reduce_in_place(views, Reduction::Sum);
        assert!(refusal(refused).contains("registered"));
        let mut whole = registered(&ranks, &streams[1..], 1)?;
        let sources = [mixed[0].as_view(), one.as_view()];
        let refused = ranks.on(&streams)?.reduce(sources, &mut whole[0], 1, Reduction::Sum);
        assert!(refusal(refused).contains("registered"));
        let refused = ranks.on(&streams)?.send_receive([((0, &mixed[0]), (1, &mut other))]);
        assert!(refusal(refused).contains("registered"));
        let sources = [mixed[0].as_view(), whole[0].as_view()];
        ranks.on(&streams)?.reduce(sources, &mut other, 1, Reduction::Sum)?;
        assert_eq!(streams[1].download_vec(&other)?, vec![2; LEN]);
        // The end of a communicator ends its registrations.
        ranks.abort()?;
        let late = ranks.register(memory(&contexts[0])?).map_err(Error::from);
        assert!(matches!(late, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{late:?}");
        streams[0].fill(&mut mixed[0], 9)?;
        hold(&streams[0], &mixed[0], 9)
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_registered_memory_is_dropped_behind_its_work() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = registered(&ranks, &streams, 1)?;
        let sources = registered(&ranks, &streams, 5)?;
        // NCCL connects the ranks at the first operation.
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce(&sources, &mut sums, Reduction::Sum)?;
        drop(sources); // returns at once
        drop(ranks);
        assert!(!streams[1].query()?);
        stalled.release();
        streams.iter().zip(&sums).try_for_each(|(stream, sums)| hold(stream, sums, 10))?;
        drop(sums);
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_registered_memory_is_dropped_under_a_lost_rank() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        // NCCL connects the ranks at the first operation, whose call waits for both.
        let mut ones = buffers(&streams, |_| vec![1u32; LEN])?;
        group(|group| {
            let calls = pair.iter().zip(&streams).zip(&mut ones);
            calls.into_iter().try_for_each(|((rank, stream), ones)| {
                group.on(rank, stream)?.all_reduce_in_place(ones, Reduction::Sum)
            })
        })?;
        let mut buffer = pair[0].register(memory(&contexts[0])?)?;
        // The other rank does not come.
        pair[0].on(&streams[0])?.all_reduce_in_place(&mut buffer, Reduction::Sum)?;
        drop(buffer); // returns at once
        assert!(!streams[0].query()?);
        pair[0].abort()?;
        streams[0].synchronize()?;
        drop(pair);
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_registered_memory_stays_while_an_abort_waits_for_graphs() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![1u32; LEN])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let (freed, seen) = mpsc::channel::<()>();
        // Only the abort of the last rank waits.
        let known = memory(&contexts[1])?;
        let (address, owner) = (known.as_raw(), (known, freed));
        // SAFETY: the owner keeps the memory, which nothing else uses.
        let known = unsafe { DeviceBuffer::<u32>::from_raw(address, LEN, &contexts[1], owner) }?;
        let known = [ranks.register(memory(&contexts[0])?)?, ranks.register(known)?];
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        ranks.abort()?; // goes on, as long as there is the graph
        drop(known);
        cuda_core::drops::flush();
        assert_eq!(seen.try_recv(), Err(mpsc::TryRecvError::Empty), "NCCL knows the memory");
        drop(graph);
        let gone = seen.recv_timeout(Duration::from_secs(10));
        assert_eq!(gone, Err(mpsc::RecvTimeoutError::Disconnected), "it is freed when NCCL has ended");
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn l_nccl_registered_memory_in_graphs() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let alone = apart(&contexts)?;
        let source = alone[0].register(memory(&contexts[0])?)?;
        let mut sum = alone[0].register(memory(&contexts[0])?)?;
        let mut source = source;
        streams[0].fill(&mut source, 4)?;
        let graph = Graph::capture(&contexts[0], |stream| {
            alone[0].on(stream)?.all_reduce(&source, &mut sum, Reduction::Sum)
        })?;
        // The graph keeps the memory registered.
        let kept = source.close().expect_err("a graph uses the memory");
        drop(kept.value);
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.launch(&streams[0])?;
        hold(&streams[0], &sum, 4)?;
        drop((exec, sum));
        cuda_core::drops::flush();
        Ok(())
    }
}
