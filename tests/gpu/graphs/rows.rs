//! Copies of rows and of slices of rows in graphs.

use cuda_core::{DeviceBuffer, Graph, PinnedBuffer, Result, Shape, Stream, sys};
use support::{gpu_test, one_stream, refusal};

const LEN: usize = 240;

/// The value of bytes that no copy writes.
const UNTOUCHED: u32 = 99;

/// Five rows of 7 elements, which begin 7 elements apart at one end and 10 at the other.
const ROWS: ([usize; 3], [usize; 2], [usize; 2]) = ([7, 5, 1], [7, 5], [10, 5]);

/// Two slices of 4 rows of 3 elements. At one end rows are 5 elements and slices 6 rows apart; at the other
/// they are packed.
const SLICES: ([usize; 3], [usize; 2], [usize; 2]) = ([3, 4, 2], [5, 6], [3, 4]);

fn shape([width, height, depth]: [usize; 3], [pitch, rows]: [usize; 2]) -> Shape {
    Shape::volume(width, height, depth).with_pitch(4 * pitch).with_slice_height(rows)
}

/// Returns the content of the destination after such a copy.
fn copied(from: &[u32], (size, near, far): ([usize; 3], [usize; 2], [usize; 2])) -> Vec<u32> {
    let mut to = vec![UNTOUCHED; LEN];
    let at = |[pitch, rows]: [usize; 2], x, y, z| (z * rows + y) * pitch + x;
    let [width, height, depth] = size;
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                to[at(far, x, y, z)] = from[at(near, x, y, z)];
            }
        }
    }
    to
}

fn copy(
    stream: &Stream,
    from: &DeviceBuffer<u32>,
    to: &mut DeviceBuffer<u32>,
    (size, near, far): ([usize; 3], [usize; 2], [usize; 2]),
) -> Result<()> {
    stream.copy_pitched(from.pitched(shape(size, near))?, to.pitched_mut(shape(size, far))?)
}

gpu_test! {
    needs 1;
    fn l_copies_of_rows_and_slices_of_rows() -> Result<()> {
        let (context, stream) = one_stream()?;
        let numbers: Vec<u32> = (1000..).take(LEN).collect();
        let mut from = stream.alloc::<u32>(LEN)?;
        stream.upload(&numbers, &mut from)?;
        let (mut flat, mut deep) = (stream.alloc::<u32>(LEN)?, stream.alloc::<u32>(LEN)?);
        let captured = Graph::capture(&context, |stream| {
            copy(stream, &from, &mut flat, ROWS)?;
            copy(stream, &from, &mut deep, SLICES)
        })?;
        let built = Graph::build(&context, |builder| {
            builder.add(|stream| copy(stream, &from, &mut flat, ROWS))?;
            builder.add(|stream| copy(stream, &from, &mut deep, SLICES))?;
            Ok(())
        })?;
        assert_eq!((captured.edge_count()?, built.edge_count()?), (1, 0));
        for graph in [captured, built] {
            let nodes = graph.nodes()?;
            assert!(nodes.iter().all(|node| node.kind() == sys::CU_GRAPH_NODE_TYPE_MEMCPY));
            let mut texts: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            texts.sort();
            assert_eq!(texts, ["copy of 140 bytes", "copy of 96 bytes"]);
            let mut exec = graph.instantiate()?;
            for _ in 0..2 {
                stream.fill(&mut flat, UNTOUCHED)?;
                stream.fill(&mut deep, UNTOUCHED)?;
                exec.launch(&stream)?;
                assert_eq!(stream.download_vec(&flat)?, copied(&numbers, ROWS));
                assert_eq!(stream.download_vec(&deep)?, copied(&numbers, SLICES));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_copies_of_rows_of_pinned_memory_are_lent() -> Result<()> {
        let (context, stream) = one_stream()?;
        let numbers: Vec<u32> = (1000..).take(LEN).collect();
        let mut input = PinnedBuffer::from_slice(&context, &numbers)?;
        let mut output = PinnedBuffer::from_slice(&context, &[UNTOUCHED; LEN])?;
        let mut x = stream.alloc::<u32>(LEN)?;
        let (size, near, far) = ROWS;
        let graph = Graph::capture(&context, |stream| {
            let rows = input.pitched(shape(size, near))?;
            stream.copy_pitched(rows, x.pitched_mut(shape(size, near))?)?;
            let rows = x.pitched(shape(size, near))?;
            stream.copy_pitched(rows, output.pitched_mut(shape(size, far))?)
        })?;
        let mut exec = graph.instantiate()?;
        for step in 0..3 {
            input.as_mut_slice()?.fill(step);
            exec.lend(&input).lend_mut(&mut output).launch(&stream)?;
            assert_eq!(output.as_slice()?, copied(&[step; LEN], ROWS));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_copies_of_rows_stay_as_they_are() -> Result<()> {
        let (context, stream) = one_stream()?;
        let numbers: Vec<u32> = (1000..).take(LEN).collect();
        let (mut from, mut to) = (stream.alloc::<u32>(LEN)?, stream.alloc::<u32>(LEN)?);
        stream.upload(&numbers, &mut from)?;
        let graph = Graph::capture(&context, |stream| copy(stream, &from, &mut to, ROWS))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        let refused = refusal(exec.set_copy(node, &from, &mut to));
        assert!(refused.contains("copies of rows") && refused.contains("`update`"), "{refused}");
        stream.fill(&mut to, UNTOUCHED)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, copied(&numbers, ROWS));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_fills_of_rows_are_replaced() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc::<u32>(LEN)?, stream.alloc::<u32>(LEN)?);
        let rows = shape([7, 5, 1], [10, 5]);
        let graph = Graph::capture(&context, |stream| stream.fill_pitched(x.pitched_mut(rows)?, 1))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.set_fill_pitched(node, y.slice_mut(3..)?.pitched(rows)?, 0xAB_CDEF)?;
        for buffer in [&mut x, &mut y] {
            stream.fill(buffer, UNTOUCHED)?;
        }
        exec.launch(&stream)?;
        let mut expected = vec![UNTOUCHED; LEN];
        (0..5).for_each(|row| expected[3 + 10 * row..][..7].fill(0xAB_CDEF));
        assert_eq!(stream.download_vec(&y)?, expected);
        assert_eq!(stream.download_vec(&x)?, [UNTOUCHED; LEN]);
        let fewer = shape([7, 4, 1], [10, 5]);
        let refused = exec.set_fill_pitched(node, x.pitched_mut(fewer)?, 1);
        assert!(refusal(refused).contains("as many and as long"));
        let gaps = shape([3, 4, 2], [5, 6]);
        let refused = exec.set_fill_pitched(node, x.pitched_mut(gaps)?, 1);
        assert!(refusal(refused).contains("several fills"));
        let mut wide = stream.alloc::<[u64; 2]>(LEN)?;
        let refused = exec.set_fill_pitched(node, wide.pitched_mut(Shape::plane(7, 5))?, [1, 2]);
        assert!(refusal(refused).contains("several fills"));
        assert!(refusal(exec.set_fill(node, &mut x, 1)).contains("`set_fill_pitched`"));
        exec.launch(&stream)?; // as before
        assert_eq!(stream.download_vec(&x)?, [UNTOUCHED; LEN]);
        Ok(())
    }
}
