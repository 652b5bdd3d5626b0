//! Input that is refused before NCCL is called.

use cuda_core::nccl::{Communicator, CommunicatorOptions, Ranks, Reduction, UniqueId, group};
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{Context, ContextFlags, Error, Graph, NcclError, Result};
use support::{gpu_test, refusal};

use super::{apart, buffers, devices, values};

gpu_test! {
    needs 2, nccl;
    fn k_nccl_refuses_wrong_lengths_and_ranks() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        let (rank, stream) = (&pair[0], &streams[0]);
        let three = stream.alloc_zeroed::<u32>(3)?;
        let mut four = stream.alloc_zeroed::<u32>(4)?;
        let mismatch = |result: Result<()>| assert!(
            matches!(result, Err(Error::LengthMismatch(_))), "{result:?}"
        );
        mismatch(rank.on(stream)?.all_reduce(&three, &mut four, Reduction::Sum));
        mismatch(rank.on(stream)?.reduce(&three, Some(four.as_view_mut()), 0, Reduction::Sum));
        mismatch(rank.on(stream)?.broadcast(Some(three.as_view()), &mut four, 0));
        let gathered = refusal(rank.on(stream)?.all_gather(&three, &mut four));
        assert!(gathered.ends_with("destination holds 4 elements, not 3 for each of 2 ranks"));
        let scattered = refusal(rank.on(stream)?.reduce_scatter(&three, &mut four, Reduction::Sum));
        assert!(scattered.ends_with("source holds 3 elements, not 4 for each of 2 ranks"));
        mismatch(rank.on(stream)?.all_to_all(&three, &mut four));
        let mut odd = stream.alloc_zeroed::<u32>(3)?;
        assert!(refusal(rank.on(stream)?.all_to_all(&three, &mut odd)).contains("cannot be divided"));
        assert!(refusal(rank.on(stream)?.all_gather_in_place(&mut odd)).contains("cannot be divided"));
        let refused = rank.on(stream)?.reduce_scatter_in_place(&mut odd, Reduction::Sum);
        assert!(refusal(refused).contains("cannot be divided"));
        assert!(refusal(rank.on(stream)?.reduce(&three, None, 0, Reduction::Sum)).contains("destination"));
        assert!(refusal(rank.on(stream)?.broadcast(None, &mut odd, 0)).contains("source"));
        let outside = |result| assert!(refusal(result).contains("there is no rank 2 among 2"));
        outside(rank.on(stream)?.send(&three, 2));
        outside(rank.on(stream)?.receive(&mut odd, 2));
        outside(rank.on(stream)?.broadcast_in_place(&mut odd, 2));
        outside(rank.on(stream)?.reduce_in_place(&mut odd, 2, Reduction::Sum));
        assert!(refusal(rank.split(Some(1 << 31), 0).map(drop)).contains("beyond i32::MAX"));
        let unshrunk = |excluded: &[usize]| refusal(rank.shrink(excluded).map(drop));
        assert!(unshrunk(&[]).contains("no rank is excluded"));
        assert!(unshrunk(&[1, 2]).contains("there is no excluded rank 2 among 2"));
        assert!(unshrunk(&[1, rank.rank()]).contains("this rank is excluded"));
        let refused = |options| refusal(Ranks::init_all_with(&contexts, &options));
        let options = CommunicatorOptions::new().min_ctas(3).max_ctas(2);
        assert!(refused(options).contains("at least 3 thread blocks (CTAs) and at most 2"));
        let options = CommunicatorOptions::new().cga_cluster_size(9);
        assert!(refused(options).contains("clusters of 9 thread blocks"));
        // No operation was enqueued, and the other rank was not waited for.
        stream.synchronize()
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_refuses_what_ranks_do_unlike() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut unlike = buffers(&streams, |rank| vec![1u32; 4 + rank])?;
        let refused = ranks.on(&streams)?.all_reduce_in_place(&mut unlike, Reduction::Sum);
        assert!(refusal(refused).contains("rank 0 has 4 elements and rank 1 has 5"));
        let refused = ranks.on(&streams)?.all_reduce_in_place(&mut unlike[..1], Reduction::Sum);
        assert!(refusal(refused).contains("1 buffer given for 2 ranks"));
        assert!(refusal(ranks.on(&streams[..1]).map(drop)).contains("1 stream given for 2 ranks"));
        let crossed = [&streams[1], &streams[0]];
        let refused = ranks.on(crossed).map(drop);
        let crossed = "rank 0, of device 0 and given a stream of device 1,";
        assert!(matches!(&refused, Err(Error::WrongContext(it)) if it.what == crossed), "{refused:?}");
        let refused = ranks.on(&streams)?.broadcast_in_place(&mut unlike, 2);
        assert!(matches!(refused, Err(Error::Invalid(ref it)) if it.op == "ncclBroadcast"), "{refused:?}");
        for (lens, words) in [([0, 5], "rank 0 has 0 elements and rank 1 has 5"),
            ([5, 0], "rank 0 has 5 elements and rank 1 has 0")] {
            let mut some = buffers(&streams, |rank| vec![1u32; lens[rank]])?;
            let refused = ranks.on(&streams)?.all_reduce_in_place(&mut some, Reduction::Sum);
            assert!(refusal(refused).contains(words));
        }
        let mut empty = buffers(&streams, |_| Vec::<u32>::new())?;
        ranks.on(&streams)?.all_reduce_in_place(&mut empty, Reduction::Sum)?;
        let longer = buffers(&streams, |rank| vec![1u32; 4 + rank])?;
        let mut sums = buffers(&streams, |_| vec![0u32; 4])?;
        let refused = ranks.on(&streams)?.all_reduce(&longer, &mut sums, Reduction::Sum);
        assert!(matches!(&refused, Err(Error::OnDevice { device: 1, .. })), "{refused:?}");
        unlike.reverse();
        let refused = ranks.on(&streams)?.all_reduce_in_place(&mut unlike, Reduction::Sum);
        let first = "memory of rank 0";
        assert!(matches!(&refused, Err(Error::WrongDevice(it)) if it.what == first), "{refused:?}");
        let text = refused.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(text.ends_with("each rank, the root too, takes memory of its own device"), "{text}");
        // The communicator can still be used.
        let mut alike = buffers(&streams, |_| vec![1u32; 4])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut alike, Reduction::Sum)?;
        assert_eq!(values(&streams, &alike)?, [[2; 4]; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_refuses_contexts_and_memory_of_others() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let other = Context::new(contexts[0].device(), ContextFlags::default())?;
        let own = Ranks::init_all([&other]);
        assert!(refusal(own.map(drop)).contains("primary"));
        assert!(refusal(Ranks::init_all([]).map(drop)).contains("no contexts"));
        let twice = Ranks::init_all([&contexts[0], &contexts[0]]);
        assert!(refusal(twice.map(drop)).contains("twice"));
        let id = UniqueId::new()?;
        // SAFETY: nothing is enqueued.
        let outside = unsafe { Communicator::init_rank(&contexts[0], id, 2, 2) };
        assert!(refusal(outside.map(drop)).contains("there is no rank 2 among 2"));
        for ids in [&[][..], &[id; 2]] {
            // SAFETY: as above.
            let joined = unsafe { Communicator::init_rank(&contexts[0], ids, 0, 1) };
            assert!(refusal(joined.map(drop)).contains("at least one id, and by at most"));
        }
        assert!(refusal(UniqueId::from_bytes(&[0; 127]).map(drop)).contains("127 were given"));
        assert_eq!(UniqueId::from_bytes(&id.to_bytes())?, id);

        let alone = apart(&contexts[..1])?;
        let stream = &streams[0];
        let mut there = other.alloc::<u32>(4)?;
        let refused = alone[0].on(stream)?.all_reduce_in_place(&mut there, Reduction::Sum);
        assert!(matches!(refused, Err(Error::WrongContext(_))), "{refused:?}");
        let theirs = other.create_stream()?;
        assert!(matches!(alone[0].on(&theirs), Err(Error::WrongContext(_))));
        let mut far = streams[1].alloc_zeroed::<u32>(4)?;
        let refused = alone[0].on(stream)?.all_reduce_in_place(&mut far, Reduction::Sum);
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        let mut own = stream.upload_new(&[1u32, 2])?;
        let default = contexts[0].default_stream()?;
        let refused = alone[0].on(&default)?.all_reduce_in_place(&mut own, Reduction::Sum);
        assert!(refusal(refused).contains("default stream"));
        alone[0].on(stream)?.all_reduce_in_place(&mut own, Reduction::Sum)?;
        assert_eq!(stream.download_vec(&own)?, [1, 2]);
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_refuses_to_be_called_from_a_host_function() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let alone = apart(&contexts)?;
        let stream = streams[0].clone();
        let mut buffer = stream.alloc_zeroed::<u32>(4)?;
        let (all, other) = (Ranks::init_all(&contexts)?, contexts[0].create_stream()?);
        let mut others = other.alloc_zeroed::<u32>(4)?;
        let mut memory = VirtualBuffer::<u32>::new(&contexts[0], 1 << 19)?;
        memory.grow_to(1 << 19)?;
        let (id, context) = (UniqueId::new()?, contexts[0].clone());
        all.on([&other])?.all_reduce_in_place([&mut others], Reduction::Sum)?;
        let (tell, told) = std::sync::mpsc::channel();
        streams[0].launch_host_func(move || {
            let in_group = group(|group| {
                group.on(&alone[0], &stream)?.all_reduce_in_place(buffer.as_view_mut(), Reduction::Sum)
            });
            let reduced = alone[0].on(&stream).and_then(|on| {
                on.all_reduce_in_place(&mut buffer, Reduction::Sum)
            });
            let others = [
                in_group,
                reduced,
                alone[0].abort(),
                alone[0].finalize(),
                alone[0].wait(&stream),
                alone[0].async_error(),
                alone[0].split(None, 0).map(drop),
                alone[0].shrink(&[1]).map(drop),
                alone[0].register(memory).map(drop).map_err(|refused| refused.error),
                // SAFETY: nothing is enqueued.
                unsafe { Communicator::init_rank(&context, id, 0, 1) }.map(drop),
                Ranks::init_all([&context]).map(drop),
                UniqueId::new().map(drop),
            ];
            tell.send(others).expect("the test waits");
            drop(all);
            // The communicator is dropped here.
        })?;
        streams[0].synchronize()?;
        for result in told.recv().expect("it was called") {
            assert_eq!(result, Err(Error::InCallback));
        }
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_refuses_after_the_end() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let handles: Vec<_> = ranks.as_raw().collect();
        assert!(handles[0] != handles[1] && handles.iter().all(|raw| !raw.is_null()), "{handles:?}");
        ranks.finalize()?;
        let mut buffers = buffers(&streams, |_| vec![1u32; 4])?;
        let refused = ranks.on(&streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum);
        for refused in [refused, ranks.finalize()] {
            assert!(matches!(refused, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Finalized { .. })), "{refused:?}");
            assert!(ranks.as_raw().eq(handles.iter().copied()), "they are aborted for that");
        }
        ranks.abort()?;
        let refused = ranks.on(&streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum);
        assert!(matches!(refused, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{refused:?}");
        assert!(ranks.as_raw().all(|raw| raw.is_null()));
        let pair = apart(&contexts)?;
        pair[0].abort()?;
        assert!(pair[0].as_raw().is_null() && !pair[1].as_raw().is_null());
        pair[0].abort()?;
        let aborted = |result: Result<()>| assert!(
            matches!(result, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { rank: 0, .. })), "{result:?}"
        );
        aborted(pair[0].on(&streams[0])?.all_reduce_in_place(&mut buffers[0], Reduction::Sum));
        aborted(pair[0].wait(&streams[0]));
        aborted(pair[0].async_error());
        aborted(pair[0].finalize());
        aborted(pair[0].split(None, 0).map(drop));
        aborted(pair[0].shrink_after_loss(&[1]).map(drop));
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_an_operation_that_is_refused_leaves_nothing_in_the_graph() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sum = streams[0].alloc_zeroed::<u32>(4)?;
        ranks.abort()?;
        let graph = Graph::capture(&contexts[0], |captured| {
            let refused = ranks.on([captured])?.all_reduce_in_place([&mut sum], Reduction::Sum);
            assert!(matches!(refused, Err(Error::Nccl(_))), "{refused:?}");
            captured.fill(&mut sum, 7)
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        assert_eq!(streams[0].download_vec(&sum)?, [7; 4]);
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_operations_without_elements_are_refused_alike() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut nothing = streams[0].alloc_zeroed::<u32>(0)?;
        ranks.on(&streams)?.all_reduce_in_place([&mut nothing], Reduction::Sum)?;
        let default = contexts[0].default_stream()?;
        let refused = ranks.on([&default])?.all_reduce_in_place([&mut nothing], Reduction::Sum);
        assert!(refusal(refused).contains("default stream"));
        ranks.abort()?;
        let refused = ranks.on(&streams)?.all_reduce_in_place([&mut nothing], Reduction::Sum);
        assert!(matches!(refused, Err(Error::Nccl(_))), "{refused:?}");
        Ok(())
    }
}
