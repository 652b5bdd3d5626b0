//! Graphs of two devices.

use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
use cuda_core::{
    Allocator, Batch, Context, ContextFlags, Device, DeviceBuffer, DeviceGroup, Error, Graph,
    PinnedBuffer, Result, Stream,
};
use support::{gpu_test, kernels, refusal, two_devices};

use super::{add_one, not_captured};

gpu_test! {
    needs 2;
    fn l_two_devices_in_one_graph() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let functions =
            [kernels::get(&contexts[0], "add_one")?, kernels::get(&contexts[1], "add_one")?];
        // Memory of the driver's pools would need access, which other tests share.
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let mut back = alloc(&streams[0])?;
        streams[0].fill(&mut near, 0)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |[here, there]| {
            add_one(here, &functions[0], &mut near)?;
            here.copy(&near, &mut far)?;
            add_one(there, &functions[1], &mut far)?;
            here.copy(&far, &mut back)
        })?;
        let mut exec = graph.instantiate()?;
        for step in 1..4 {
            exec.launch(&streams[0])?;
            assert_eq!(streams[0].download_vec(&back)?, [step + 1; 1000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_steps_copy_between_devices() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let mut back = alloc(&streams[0])?;
        let graph = Graph::build(&contexts[0], |builder| {
            builder.add(|stream| stream.copy(&near, &mut far))?;
            builder.add(|stream| stream.copy(far.slice(500..)?, back.slice_mut(..500)?))?;
            builder.add(|stream| stream.copy(far.slice(..500)?, back.slice_mut(500..)?))?;
            Ok(())
        })?;
        assert_eq!(graph.edge_count()?, 2, "both come behind the first, and not behind each other");
        let mut exec = graph.instantiate()?;
        for step in 0..3 {
            let numbers: Vec<u32> = (1000 * step..).take(1000).collect();
            streams[0].upload(&numbers, &mut near)?;
            streams[1].fill(&mut far, 0)?;
            exec.launch(&streams[step as usize % 2])?;
            let expected = [&numbers[500..], &numbers[..500]].concat();
            assert_eq!(streams[0].download_vec(&back)?, expected);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_several_devices_by_access() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let functions =
            [kernels::get(&contexts[0], "add_one")?, kernels::get(&contexts[1], "add_one")?];
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let (mut lone, mut back) = (alloc(&streams[1])?, alloc(&streams[0])?);
        for (buffer, stream) in [(&mut near, &streams[0]), (&mut lone, &streams[1])] {
            stream.fill(buffer, 0)?;
        }
        let graph = Graph::capture_by_access(contexts.each_ref(), |[here, there]| {
            add_one(here, &functions[0], &mut near)?;
            add_one(there, &functions[1], &mut lone)?; // beside it
            there.copy(&near, &mut far)?; // after the kernel of the other device
            add_one(there, &functions[1], &mut far)?;
            here.copy(&far, &mut back)?; // after that of this one
            there.copy(lone.slice(..500)?, far.slice_mut(..500)?) // after what reads it
        })?;
        assert_eq!(graph.node_count()?, 6);
        let mut exec = graph.instantiate()?;
        for step in 1..5 {
            exec.launch(&streams[step as usize % 2])?;
            assert_eq!(streams[0].download_vec(&back)?, [step + 1; 1000]);
            assert_eq!(streams[1].download_vec(&lone)?, [step; 1000]);
            let expected = [[step; 500], [step + 1; 500]].concat();
            assert_eq!(streams[1].download_vec(&far)?, expected);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_steps_on_several_devices() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let functions =
            [kernels::get(&contexts[0], "add_one")?, kernels::get(&contexts[1], "add_one")?];
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), 1000);
        let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
        let mut back = alloc(&streams[0])?;
        let graph = Graph::build(contexts.each_ref(), |[here, there]| {
            let fill = here.add(|stream| stream.fill(&mut near, 3))?;
            there.add_after(&[fill], |stream| stream.fill(&mut far, 10))?;
            there.add(|stream| add_one(stream, &functions[1], &mut far))?;
            here.add(|stream| add_one(stream, &functions[0], &mut near))?;
            there.add(|stream| stream.copy(far.slice(..500)?, near.slice_mut(..500)?))?;
            here.add(|stream| stream.copy(&near, &mut back))?;
            Ok(())
        })?;
        // One of the copies depends on a kernel of each device, and on what those depend on.
        assert_eq!(graph.node_count()?, 6);
        let edges = graph.edges()?;
        let behind = |node: usize| edges.iter().filter(|(_, to)| *to == node).count();
        let counts: Vec<usize> = (0..6).map(behind).collect();
        assert_eq!(counts, [0, 1, 1, 1, 2, 2], "{edges:?}");
        let mut exec = graph.instantiate()?;
        for step in 0..3 {
            streams[0].fill(&mut back, 0)?;
            exec.launch(&streams[step % 2])?;
            let expected = [[11; 500], [4; 500]].concat();
            assert_eq!(streams[0].download_vec(&back)?, expected);
        }
        let none: [&Context; 0] = [];
        assert!(refusal(Graph::build(none, |_| Ok(()))).contains("at least one stream"));
        assert!(refusal(Graph::capture(vec![], |_| Ok(()))).contains("at least one stream"));
        assert!(refusal(Graph::capture_by_access(none, |_| Ok(()))).contains("at least one stream"));
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_a_graph_has_as_many_streams_as_a_list_has_contexts() -> Result<()> {
        let devices = Device::contexts(Device::all()?)?;
        let contexts: Vec<&Context> = devices.iter().chain(&devices).collect();
        let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>>>()?;
        let mut parts = Vec::new();
        for stream in &streams {
            parts.push(stream.alloc::<u32>(100)?);
        }
        let run = |parts: &[DeviceBuffer<u32>], value: u32, graph: Graph| -> Result<()> {
            assert_eq!(graph.node_count()?, contexts.len());
            assert_eq!(graph.edge_count()?, 0, "a stream for each");
            graph.instantiate()?.launch(&streams[0])?;
            for (stream, part) in streams.iter().zip(parts) {
                assert_eq!(stream.download_vec(part)?, [value; 100]);
            }
            Ok(())
        };
        let fill = |parts: &mut [DeviceBuffer<u32>], streams: Vec<&Stream>, value| {
            assert_eq!(streams.len(), contexts.len());
            let mut pairs = streams.into_iter().zip(parts);
            pairs.try_for_each(|(stream, part)| stream.fill(part, value))
        };
        let graph = Graph::capture(contexts.clone(), |streams| fill(&mut parts, streams, 1))?;
        run(&parts, 1, graph)?;
        let list = contexts.clone();
        let graph = Graph::capture_by_access(list, |streams| fill(&mut parts, streams, 2))?;
        run(&parts, 2, graph)?;
        let graph = Graph::build(contexts.clone(), |builders| {
            let mut pairs = builders.into_iter().zip(&mut parts);
            pairs.try_for_each(|(builder, part)| {
                builder.add(|stream| stream.fill(part, 3)).map(drop)
            })
        })?;
        run(&parts, 3, graph)?;
        // The same for a list of contexts, instead of references to them: as a slice, and as an array.
        let graphs = [
            Graph::capture(&devices[..2], |streams| fill_two([streams[0], streams[1]], &mut parts))?,
            Graph::capture(&[devices[0].clone(), devices[1].clone()], |two| fill_two(two, &mut parts))?,
        ];
        for graph in graphs {
            graph.instantiate()?.launch(&streams[0])?;
            for (stream, part) in streams[..2].iter().zip(&mut parts) {
                assert_eq!(stream.download_vec(&*part)?, [4; 100]);
                stream.fill(part, 0)?;
            }
        }
        Ok(())
    }
}

fn fill_two(streams: [&Stream; 2], parts: &mut [DeviceBuffer<u32>]) -> Result<()> {
    let mut pairs = streams.into_iter().zip(parts);
    pairs.try_for_each(|(stream, part)| stream.fill(part, 4))
}

/// Changes the operations in a graph's second context, to memory of that context only.
fn change_operations_of_both(contexts: [&Context; 2]) -> Result<()> {
    let streams = [contexts[0].create_stream()?, contexts[1].create_stream()?];
    let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::plain(), 100);
    let (mut near, mut far) = (alloc(&streams[0])?, alloc(&streams[1])?);
    let (mut other, mut last) = (alloc(&streams[1])?, alloc(&streams[1])?);
    let mut capture = || {
        Graph::capture(contexts, |[here, there]| {
            here.fill(&mut near, 1)?;
            there.fill(&mut far, 2)?;
            there.copy(&far, &mut last)
        })
    };
    let (graph, same) = (capture()?, capture()?);
    let nodes: Vec<_> = graph.nodes()?.iter().map(|node| node.id()).collect();
    let mut exec = graph.instantiate()?;
    // An update does not change the contexts of operations.
    exec.update(&same)?;
    exec.set_fill(nodes[1], &mut other, 5)?;
    exec.set_copy(nodes[2], &other, &mut last)?;
    let elsewhere = |refused: Result<()>| match refused {
        Err(Error::WrongContext(_) | Error::WrongDevice(_)) => {}
        other => panic!("{other:?}"),
    };
    elsewhere(exec.set_fill(nodes[0], &mut other, 6));
    elsewhere(exec.set_fill(nodes[1], &mut near, 6));
    match exec.set_copy(nodes[2], &near, &mut last) {
        Err(Error::Invalid(_)) if contexts[0].device() != contexts[1].device() => {}
        other => elsewhere(other),
    }
    exec.launch(&streams[0])?;
    assert_eq!(streams[1].download_vec(&last)?, [5; 100]);
    assert_eq!(streams[0].download_vec(&near)?, [1; 100]);
    Ok(())
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_operations_of_another_context_are_changed() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let other = Context::new(context.device(), ContextFlags::default())?;
        change_operations_of_both([&context, &other])
    }
}

gpu_test! {
    needs 2, cuda_12_0;
    fn l_operations_of_another_device_are_changed() -> Result<()> {
        change_operations_of_both([&Device::get(0)?.context()?, &Device::get(1)?.context()?])
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_each_copy_of_a_batch_of_another_context_is_changed() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let other = Context::new(context.device(), ContextFlags::default())?;
        let stream = other.create_stream()?;
        let alloc = || stream.alloc_with::<u32>(&Allocator::plain(), 100);
        let (mut from, mut next, mut a, mut b) = (alloc()?, alloc()?, alloc()?, alloc()?);
        stream.fill(&mut from, 1)?;
        stream.fill(&mut next, 2)?;
        let graph = Graph::capture([&context, &other], |[_, there]| {
            let mut batch = Batch::new();
            batch.copy(&from, &mut a)?;
            batch.copy(&from, &mut b)?;
            there.enqueue(batch)
        })?;
        let copies: Vec<_> = graph.nodes()?.iter().map(|node| node.id()).collect();
        let mut exec = graph.instantiate()?;
        exec.set_copy(copies[1], &next, &mut b)?;
        exec.set_copy(copies[0], &next, &mut a)?; // its node is not the batch's last
        exec.launch(&stream)?;
        assert_eq!([stream.download_vec(&a)?, stream.download_vec(&b)?], [[2; 100], [2; 100]]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_what_a_group_of_captured_streams_does_is_captured() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        // The broadcast consists of several pieces.
        let len = if cfg!(miri) { 100 } else { 3 << 19 };
        let alloc = |stream: &Stream| stream.alloc_with::<u32>(&Allocator::cache(), len);
        let each = || streams.iter().map(alloc).collect::<Result<Vec<_>>>();
        let (mut first, mut turned, mut crossed) = (each()?, each()?, each()?);
        let mut whole = alloc(&streams[1])?;
        let mut work = |captured: [&Stream; 2]| {
            let group = DeviceGroup::from_streams(captured.map(Clone::clone))?;
            group.broadcast_in_place(&mut first, 0)?;
            captured[1].fill(&mut first[1], 9)?;
            group.rotate(&first, &mut turned, 1)?;
            group.all_to_all(&turned, &mut crossed)?;
            let shares = [crossed[0].slice(..len / 2)?, crossed[1].slice(len / 2..)?];
            group.gather(shares, &mut whole)?;
            assert!(group.synchronize().is_err(), "what is captured cannot be waited for");
            Ok(())
        };
        let list = || contexts.each_ref();
        let graphs = [Graph::capture(list(), &mut work)?, Graph::capture_by_access(list(), work)?];
        for graph in &graphs {
            let mut exec = graph.instantiate()?;
            for round in [3, 4] {
                streams[0].fill(&mut first[0], round)?;
                exec.launch(&streams[0])?;
                // Each half has the other device's values.
                let seen = streams[1].download_vec(&whole)?;
                assert!(seen[..len / 2].iter().all(|it| *it == 9), "{round}: {:?}", &seen[..4]);
                assert!(seen[len / 2..].iter().all(|it| *it == round), "{round}: {:?}", &seen[len - 4..]);
            }
        }
        Graph::capture(&contexts[0], |captured| {
            let mixed = DeviceGroup::from_streams([captured.clone(), streams[1].clone()]);
            not_captured(mixed, "DeviceGroup::from_streams");
            Ok(())
        })
        .map(drop)
    }
}

gpu_test! {
    needs 2;
    fn l_memory_of_pools_is_captured_whatever_is_current() -> Result<()> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        let stream = contexts[1].create_stream()?;
        let pooled = || stream.alloc_with::<u32>(&Allocator::driver_pool(), 16);
        let (mut x, mut y, mut z) = (pooled()?, pooled()?, pooled()?);
        let shape = ArrayShape::D1 { width: 16 };
        let mut image = CudaArray::<u32>::new(&contexts[1], shape, ArrayFlags::default())?;
        let mut host = PinnedBuffer::<u32>::from_slice(&contexts[1], &[7; 16])?;
        for current in [None, Some(&contexts[1]), Some(&contexts[0])] {
            let _entered = current.map(Context::enter).transpose()?;
            stream.fill(&mut x, 1)?;
            let graph = Graph::capture(contexts.each_ref(), |[_, captured]| {
                captured.upload(&host, &mut x)?;
                captured.copy_to_array(&x, &mut image)?;
                captured.copy_from_array(&image, &mut y)?;
                let mut batch = Batch::new();
                batch.copy(&y, &mut z)?;
                captured.enqueue(batch)?;
                captured.download(&z, &mut host)
            })?;
            assert_eq!(Context::current()?.as_ref(), current);
            let mut exec = graph.instantiate()?;
            exec.lend_mut(&mut host).launch(&stream)?;
            assert_eq!(stream.download_vec(&z)?, [7; 16]);
        }
        Ok(())
    }
}
