//! Graphs that access another device's memory: copies and kernels, and access that is enabled and revoked.

use cuda_core::{
    Allocator, Batch, Context, Device, DeviceBuffer, Error, Graph, GraphExec, MemoryPool,
    PeerAccess, Result, Shape, Stream, managed::ManagedBuffer,
};
use support::{gpu_test, kernels, refusal, report, two_devices};

/// Creates a pool on each device.
fn pools() -> Result<[MemoryPool; 2]> {
    let [first, second] = [0, 1].map(|at| MemoryPool::builder(Device::get(at)?).build());
    Ok([first?, second?])
}

/// Asserts that a launch or an update is refused because access was revoked.
#[track_caller]
fn revoked(refused: Result<()>, cure: &str) {
    let why = refusal(refused);
    assert!(why.contains("between which access was revoked") && why.ends_with(cure), "{why}");
}

gpu_test! {
    needs 2;
    fn l08_a_copy_from_a_pool_is_captured_with_access_alone() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let [first, second] = pools()?;
        let mut near = streams[0].alloc_with::<u32>(&first.allocator(), 1000)?;
        let mut far = streams[1].alloc_with::<u32>(&second.allocator(), 1000)?;
        let refused = |refused: Result<()>, near, far| {
            let why = refusal(refused);
            let start = format!("to capture it, device {near} needs access to the pool on device {far}");
            assert!(why.starts_with(&start), "{why}");
        };
        let rows = Shape::plane(10, 10);
        let graph = Graph::capture(contexts.each_ref(), |[here, there]| {
            refused(here.copy(&near, &mut far), 0, 1);
            refused(there.copy(&near, &mut far), 1, 0);
            refused(here.copy_pitched(near.pitched(rows)?, far.pitched_mut(rows)?), 0, 1);
            let mut batch = Batch::new();
            batch.copy(&near, &mut far)?;
            refused(here.enqueue(batch), 0, 1);
            // The capture continues.
            here.fill(&mut near, 1)
        })?;
        assert_eq!(graph.node_count()?, 1);
        second.set_access(contexts[0].device(), PeerAccess::ReadWrite)?;
        let graph = Graph::capture(contexts.each_ref(), |[here, there]| {
            // The other device's access to this one's pool is independent.
            refused(there.copy(&near, &mut far), 1, 0);
            here.copy(&near, &mut far)
        })?;
        streams[0].fill(&mut near, 3)?;
        graph.instantiate()?.launch(&streams[0])?;
        assert_eq!(streams[1].download_vec(&far)?, [3; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s42_a_copy_from_a_pool_goes_by_the_access_when_it_was_captured() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let [first, second] = pools()?;
        let mut near = streams[0].alloc_with::<u32>(&first.allocator(), 1000)?;
        streams[0].fill(&mut near, 3)?;
        let mut far = streams[1].alloc_with::<u32>(&second.allocator(), 1000)?;
        for in_batch in [false, true] {
            second.set_access(contexts[0].device(), PeerAccess::ReadWrite)?;
            let graph = Graph::capture(contexts.each_ref(), |[here, _]| {
                if !in_batch {
                    return here.copy(&near, &mut far);
                }
                let mut batch = Batch::new();
                batch.copy(&near, &mut far)?;
                here.enqueue(batch)
            })?;
            let mut exec = graph.instantiate()?;
            streams[1].fill(&mut far, 0)?;
            exec.launch(&streams[0])?;
            assert_eq!(streams[1].download_vec(&far)?, [3; 1000]);
            second.set_access(contexts[0].device(), PeerAccess::None)?;
            revoked(exec.launch(&streams[0]), "capture it again");
            revoked(exec.update(&graph), "capture it again");
            // Access in the other direction does not suffice, though the driver would instantiate the graph.
            first.set_access(contexts[1].device(), PeerAccess::ReadWrite)?;
            revoked(exec.launch(&streams[0]), "capture it again");
            revoked(graph.instantiate().map(drop), "capture it again");
            first.set_access(contexts[1].device(), PeerAccess::None)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s42_a_copy_goes_by_the_access_when_it_was_instantiated() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let rows = Shape::plane(10, 50).with_pitch(80);
        let give = || contexts[0].enable_peer_access(&contexts[1]);
        let revoke = || contexts[0].disable_peer_access(&contexts[1]);
        for in_rows in [false, true] {
            let graph = Graph::capture(&contexts[0], |stream| match in_rows {
                false => stream.copy(&near, &mut far),
                true => stream.copy_pitched(near.pitched(rows)?, far.pitched_mut(rows)?),
            })?;
            let mut step = 0;
            let mut launch = |exec: &mut GraphExec| -> Result<()> {
                step += 1;
                streams[0].fill(&mut near, step)?;
                streams[1].fill(&mut far, 0)?;
                exec.launch(&streams[0])?;
                let found = streams[1].download_vec(&far)?;
                let gap = if in_rows { 0 } else { step };
                assert_eq!([found[0], found[10], found[989]], [step, gap, step]);
                Ok(())
            };
            let mut without = graph.instantiate()?;
            launch(&mut without)?;
            give()?;
            // Access that is enabled later does no harm.
            launch(&mut without)?;
            let mut with = graph.instantiate()?;
            launch(&mut with)?;
            revoke()?;
            revoked(with.launch(&streams[0]), "instantiate it again");
            launch(&mut graph.instantiate()?)?;
            give()?;
            // Enabled again, it is not the access that the executable was made for.
            revoked(with.launch(&streams[0]), "instantiate it again");
            revoked(with.update(&graph), "instantiate it again");
            revoked(with.upload(&streams[0]), "instantiate it again");
            launch(&mut graph.instantiate()?)?;
            revoke()?;
            let refused = revoke();
            assert!(refused.is_err(), "there is none");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, cuda_12_0;
    fn s42_an_executable_copies_between_devices_as_it_was_instantiated() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let [first, second] = pools()?;
        let plain = |at: usize| streams[at].alloc_with::<u32>(&Allocator::cache(), 1000);
        let mut near = plain(0)?;
        let [mut far, mut other, mut last] = [plain(1)?, plain(1)?, plain(1)?];
        let pooled = streams[0].alloc_with::<u32>(&first.allocator(), 1000)?;
        let mut away = streams[1].alloc_with::<u32>(&second.allocator(), 1000)?;
        streams[0].fill(&mut near, 7)?;
        let capture = |source: &DeviceBuffer<u32>, destination: &mut DeviceBuffer<u32>| {
            Graph::capture(&contexts[0], |stream| stream.copy(source, destination))
        };
        second.set_access(contexts[0].device(), PeerAccess::ReadWrite)?;
        let [of_contexts, same, of_pools] =
            [capture(&near, &mut far)?, capture(&near, &mut other)?, capture(&pooled, &mut away)?];
        let mut exec = of_contexts.instantiate()?;
        exec.update(&same)?;
        exec.launch(&streams[0])?;
        assert_eq!(streams[1].download_vec(&other)?, [7; 1000]);
        // Access to a pool does not give access to memory of contexts, nor vice versa.
        let refused = |refused: Result<()>| {
            let why = refusal(refused);
            assert!(why.contains("not instantiated for copies of such memory from device 0"), "{why}");
        };
        refused(exec.update(&of_pools));
        let mut of_pools = of_pools.instantiate()?;
        refused(of_pools.update(&same));
        let copy = same.nodes()?[0].id();
        drop(exec);
        let mut exec = same.instantiate()?;
        exec.set_copy(copy, &near, &mut last)?;
        exec.launch(&streams[0])?;
        assert_eq!(streams[1].download_vec(&last)?, [7; 1000]);
        // One copy of each kind: which operation is which is unknown.
        let mut capture = || {
            Graph::capture(&contexts[0], |stream| {
                stream.copy(&near, &mut far)?;
                stream.copy(&pooled, &mut away)
            })
        };
        let (both, again) = (capture()?, capture()?);
        refused(both.instantiate()?.update(&again));
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s42_a_pool_that_was_never_open_is_closed_and_ends_no_executable() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 100);
        let (near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let mut exec = Graph::capture(&contexts[0], |stream| stream.copy(&near, &mut far))?.instantiate()?;
        let [_, second] = pools()?;
        second.set_access(contexts[0].device(), PeerAccess::None)?;
        exec.launch(&streams[0])?;
        streams[0].synchronize()
    }
}

gpu_test! {
    needs 2;
    fn s42_a_revocation_that_is_refused_ends_no_executable() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 100);
        let (near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let graph = Graph::capture(&contexts[0], |stream| stream.copy(&near, &mut far))?;
        let mut exec = graph.instantiate()?;
        assert!(contexts[0].disable_peer_access(&contexts[1]).is_err(), "there is none");
        exec.launch(&streams[0])?;
        streams[0].synchronize()
    }
}

gpu_test! {
    needs 2, cuda_12_0;
    fn l_copies_between_devices_are_changed() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |at: usize| streams[at].alloc_with::<u32>(&Allocator::cache(), 1000);
        let (near, mut far) = (alloc(0)?, alloc(1)?);
        let (mut source, mut destination) = (alloc(0)?, alloc(1)?);
        let mut beside = alloc(0)?;
        streams[0].fill(&mut source, 5)?;
        for (at, access) in [(0, false), (1, false), (0, true), (1, true)] {
            if access {
                contexts[at].enable_peer_access(&contexts[1 - at])?;
            }
            let graph = Graph::capture(&contexts[at], |stream| stream.copy(&near, &mut far))?;
            let (mut exec, copy) = (graph.instantiate()?, graph.nodes()?[0].id());
            drop(graph);
            streams[1].fill(&mut destination, 0)?;
            exec.set_copy(copy, source.slice(..500)?, destination.slice_mut(..500)?)?;
            exec.launch(&streams[1])?;
            let expected = [[5; 500], [0; 500]].concat();
            assert_eq!(streams[1].download_vec(&destination)?, expected);
            // Copies in the other direction, or on one device, are refused.
            let why = refusal(exec.set_copy(copy, &destination, &mut source));
            assert!(why.contains("not instantiated for copies of such memory from device 1"), "{why}");
            assert!(exec.set_copy(copy, &source, &mut beside).is_err());
            let mut pooled = streams[1].alloc_with::<u32>(&Allocator::driver_pool(), 1000)?;
            let why = refusal(exec.set_copy(copy, &source, &mut pooled));
            assert!(why.contains("only memory of `cuMemAlloc`"), "{why}");
            if access {
                contexts[at].disable_peer_access(&contexts[1 - at])?;
                revoked(exec.set_copy(copy, &source, &mut destination), "instantiate it again");
            } else {
                exec.set_copy(copy, &source, &mut destination)?;
                exec.launch(&streams[0])?;
                assert_eq!(streams[1].download_vec(&destination)?, [5; 1000]);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 4;
    fn s42_access_is_revoked_behind_a_graph_on_a_third_device() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let third = Device::get(2)?.create_stream()?;
        let copy_words = kernels::get(&contexts[0], "copy_words")?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 100);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        streams[1].fill(&mut far, 7)?;
        contexts[0].enable_peer_access(&contexts[1])?;
        let graph = Graph::capture(&contexts[0], |stream| {
            // SAFETY: both buffers have 100 elements.
            unsafe { stream.kernel(&copy_words).block(128).arg(&mut near).arg(&far).arg(100u32).launch() }
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&third)?;
        contexts[0].disable_peer_access(&contexts[1])?;
        assert!(third.query()?, "the launch is done");
        assert_eq!(streams[0].download_vec(&near)?, [7; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 4;
    fn s42_access_is_revoked_behind_a_copy_of_a_graph_on_a_third_device() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let third = Device::get(2)?.create_stream()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 100);
        let (near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        contexts[0].enable_peer_access(&contexts[1])?;
        let graph = Graph::capture(&contexts[0], |stream| stream.copy(&near, &mut far))?;
        let mut exec = graph.instantiate()?;
        exec.launch(&third)?;
        contexts[0].disable_peer_access(&contexts[1])?;
        assert!(third.query()?, "the launch is done");
        revoked(exec.launch(&third), "instantiate it again");
        graph.instantiate()?.launch(&third)?;
        third.synchronize()
    }
}

// Managed memory that every device uses counts as the stream's own, whichever device it was allocated for.
gpu_test! {
    needs 4;
    fn s42_a_copy_of_managed_memory_goes_by_the_access_of_its_stream_s_device() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let third = Device::get(2)?.context()?;
        let stream = third.create_stream()?;
        let values = ManagedBuffer::<u32>::from_slice(&contexts[0], &[3; 100])?;
        let mut far = streams[1].alloc_with::<u32>(&Allocator::cache(), 100)?;
        let rows = Shape::plane(10, 10);
        if let Err(refused) = stream.copy(&values, &mut far) {
            assert!(matches!(refused, Error::WrongDevice(_)), "{refused:?}");
            report!("some device has no concurrent managed access: only the refusal was tried");
            return Ok(());
        }
        assert_eq!(streams[1].download_vec(&far)?, [3; 100]);
        streams[1].fill(&mut far, 0)?;
        stream.copy_pitched(values.pitched(rows)?, far.pitched_mut(rows)?)?;
        assert_eq!(streams[1].download_vec(&far)?, [3; 100]);
        let revoke = |from: &Context| {
            from.enable_peer_access(&contexts[1])?;
            from.disable_peer_access(&contexts[1])
        };
        for in_rows in [false, true] {
            let graph = Graph::capture(&third, |stream| match in_rows {
                false => stream.copy(&values, &mut far),
                true => stream.copy_pitched(values.pitched(rows)?, far.pitched_mut(rows)?),
            })?;
            let mut exec = graph.instantiate()?;
            revoke(&contexts[0])?;
            streams[1].fill(&mut far, 0)?;
            exec.lend(&values).launch(&stream)?;
            assert_eq!(streams[1].download_vec(&far)?, [3; 100]);
            revoke(&third)?;
            revoked(exec.lend(&values).launch(&stream), "capture it again");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_a_kernel_reaches_another_device_while_it_has_access() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let copy_words = kernels::get(&contexts[0], "copy_words")?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 100);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let capture = |near: &mut DeviceBuffer<u32>, far: &DeviceBuffer<u32>| {
            Graph::capture(&contexts[0], |stream| {
                // Twice: memory that is accessed repeatedly is recorded once.
                for _ in 0..2 {
                    // SAFETY: both buffers have 100 elements.
                    unsafe { stream.kernel(&copy_words).block(128).arg(&mut *near).arg(far).arg(100u32).launch() }?;
                }
                Ok(())
            })
        };
        assert!(matches!(capture(&mut near, &far), Err(Error::WrongDevice(_))));
        contexts[0].enable_peer_access(&contexts[1])?;
        let mut exec = capture(&mut near, &far)?.instantiate()?;
        streams[1].fill(&mut far, 7)?;
        exec.launch(&streams[0])?;
        assert_eq!(streams[0].download_vec(&near)?, [7; 100]);
        contexts[0].disable_peer_access(&contexts[1])?;
        let why = refusal(exec.launch(&streams[0]));
        assert!(why.contains("needs access between device") && why.contains("enable_peer_access"), "{why}");
        contexts[0].enable_peer_access(&contexts[1])?;
        streams[1].fill(&mut far, 8)?;
        exec.launch(&streams[0])?;
        assert_eq!(streams[0].download_vec(&near)?, [8; 100]);
        contexts[0].disable_peer_access(&contexts[1])
    }
}

gpu_test! {
    needs 2;
    fn s42_a_kernel_reaches_the_pool_that_it_had_access_to() -> Result<()> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        let stream = contexts[0].create_stream()?;
        let copy_words = kernels::get(&contexts[0], "copy_words")?;
        let ([_, used], [_, other]) = (pools()?, pools()?);
        let far = contexts[1].create_stream()?.alloc_with::<u32>(&used.allocator(), 100)?;
        let mut near = stream.alloc::<u32>(100)?;
        // Access to another pool does not help to access this one.
        other.set_access(contexts[0].device(), PeerAccess::ReadWrite)?;
        used.set_access(contexts[0].device(), PeerAccess::ReadWrite)?;
        let graph = Graph::capture(&contexts[0], |stream| {
            // SAFETY: both buffers have 100 elements.
            unsafe {
                stream.kernel(&copy_words).block(128).arg(&mut near).arg(&far).arg(100u32).launch()
            }
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        // A kernel is not an operation of NCCL, which must not be disabled.
        exec.set_enabled(graph.nodes()?[0].id(), false)?;
        exec.set_enabled(graph.nodes()?[0].id(), true)?;
        used.set_access(contexts[0].device(), PeerAccess::None)?;
        let why = refusal(exec.launch(&stream));
        assert!(why.contains("needs access between") && why.ends_with("capture the graph again"), "{why}");
        other.set_access(contexts[0].device(), PeerAccess::None)
    }
}

gpu_test! {
    needs 2;
    fn l_rows_between_devices() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let numbers: Vec<u32> = (0..1000).collect();
        streams[0].upload(&numbers, &mut near)?;
        let plane = Shape::plane(5, 10).with_pitch(40);
        let volume = Shape::volume(5, 4, 3).with_pitch(40).with_slice_height(6);
        for (at, shape) in [(0, plane), (1, plane), (0, volume), (1, volume)] {
            streams[1].fill(&mut far, 9999)?;
            let graph = Graph::capture(&contexts[at], |stream| {
                stream.copy_pitched(near.pitched(shape)?, far.pitched_mut(shape)?)
            })?;
            graph.instantiate()?.launch(&streams[at])?;
            let rows = |index: usize| match shape == plane {
                true => index < 100 && index % 10 < 5,
                false => index < 180 && index % 10 < 5 && index % 60 < 40,
            };
            let expected: Vec<u32> =
                (0..1000).map(|index| if rows(index) { index as u32 } else { 9999 }).collect();
            assert_eq!(streams[1].download_vec(&far)?, expected);
        }
        Ok(())
    }
}
