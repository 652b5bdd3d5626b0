//! Graphs by data flow.

use cuda_core::{Access, Context, DeviceBuffer, Graph, Result, Stream};
use support::{gpu_test, kernels};

use super::{add_one, context};

const LEN: usize = 64;

/// A small generator, so that a failure is repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Enqueues a random program on `buffers`, the same for the same seed.
fn program(
    stream: &Stream,
    function: &cuda_core::Function,
    buffers: &mut [DeviceBuffer<u32>],
    seed: u64,
) -> Result<()> {
    let mut random = Random(seed);
    for _ in 0..24 {
        let (from, to) = (random.below(buffers.len()), random.below(buffers.len()));
        let (start, len) = (random.below(LEN / 2), 1 + random.below(LEN / 2));
        match random.below(4) {
            0 => stream.fill(buffers[to].slice_mut(start..start + len)?, random.below(9) as u32)?,
            1 => add_one(stream, function, &mut buffers[to])?,
            2 if from != to => {
                let (low, high) = buffers.split_at_mut(from.max(to));
                let (from, to) = match from < to {
                    true => (&mut low[from], &mut high[0]),
                    false => (&mut high[0], &mut low[to]),
                };
                let shift = random.below(LEN - len);
                stream.copy(from.slice(start..start + len)?, to.slice_mut(shift..shift + len)?)?;
            }
            _ => stream.copy_within(&mut buffers[to], 0..8, 16 + random.below(40))?,
        }
    }
    Ok(())
}

fn buffers(stream: &Stream) -> Result<Vec<DeviceBuffer<u32>>> {
    (0..4).map(|_| stream.alloc_zeroed::<u32>(LEN)).collect()
}

fn contents(stream: &Stream, buffers: &[DeviceBuffer<u32>]) -> Result<Vec<Vec<u32>>> {
    buffers.iter().map(|buffer| stream.download_vec(buffer)).collect()
}

fn same_all_ways(context: &Context, seed: u64) -> Result<()> {
    let stream = context.create_stream()?;
    let function = kernels::get(context, "add_one")?;
    let mut plain = buffers(&stream)?;
    program(&stream, &function, &mut plain, seed)?;
    program(&stream, &function, &mut plain, seed)?;
    let expected = contents(&stream, &plain)?;
    let mut chained = buffers(&stream)?;
    let chain = Graph::capture(context, |stream| program(stream, &function, &mut chained, seed))?;
    let mut flowing = buffers(&stream)?;
    let flow =
        Graph::capture_by_access(context, |stream| program(stream, &function, &mut flowing, seed))?;
    let (mut chain, mut flow) = (chain.instantiate()?, flow.instantiate()?);
    for exec in [&mut chain, &mut flow] {
        exec.launch(&stream)?;
        exec.launch(&stream)?;
    }
    assert_eq!(contents(&stream, &chained)?, expected, "as a chain, seed {seed}");
    assert_eq!(contents(&stream, &flowing)?, expected, "by data flow, seed {seed}");
    Ok(())
}

gpu_test! {
    needs 1;
    fn l_random_programs_give_the_same_result_all_ways() -> Result<()> {
        let context = context()?;
        (0..12).try_for_each(|seed| same_all_ways(&context, seed))
    }
}

gpu_test! {
    needs 1;
    fn l_independent_operations_do_not_depend_on_each_other() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let mut parts = buffers(&stream)?;
        let mut whole = stream.alloc_zeroed::<u32>(4 * LEN)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            for part in &mut parts {
                stream.fill(part, 3)?;
            }
            for (part, to) in parts.iter().zip(whole.chunks_mut(LEN)?) {
                stream.copy(part, to)?;
            }
            Ok(())
        })?;
        assert_eq!(graph.node_count()?, 8);
        assert_eq!(graph.edge_count()?, 4, "each copy behind one fill");
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&whole)?, [3; 4 * LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_host_functions_are_barriers() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let mut parts = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            for part in &mut parts {
                stream.fill(part, 1)?;
            }
            stream.launch_host_func_each(|| ())?;
            for part in &mut parts {
                stream.fill(part, 2)?;
            }
            Ok(())
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (9, 8));
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&parts[3])?, [2; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_noted_work_of_other_code_is_ordered() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(LEN)?;
        let y = stream.alloc_zeroed::<u32>(LEN)?;
        let mut z = stream.alloc_zeroed::<u32>(LEN)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut z, 1)?;
            stream.fill(&mut x, 4)?;
            let (from, to) = (x.as_raw(), y.as_raw());
            // SAFETY: nothing else uses the two until both are noted again.
            unsafe { x.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { y.note_use(stream, Access::Write) }?;
            // SAFETY: both have `LEN` elements, which the graph keeps.
            let code = unsafe { cuda_sys::cuMemcpyDtoDAsync_v2(to, from, LEN * 4, stream.as_raw()) };
            support::check("cuMemcpyDtoDAsync", code);
            // SAFETY: as above.
            unsafe { x.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { y.note_use(stream, Access::Write) }?;
            stream.copy(&y, &mut z)
        })?;
        let mut exec = graph.instantiate()?;
        for _ in 0..8 {
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&z)?, [4; LEN]);
        }
        Ok(())
    }
}
