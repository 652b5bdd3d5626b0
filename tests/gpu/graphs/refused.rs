//! Updates that the driver refuses leave an executable as it was, so that it may go on using its memory alone.

use cuda_core::{Condition, DeviceBuffer, Error, Graph, PinnedBuffer, Result, Stream};
use support::{gpu_test, one_stream};

gpu_test! {
    needs 1, cuda_12_4;
    fn s07_a_refused_update_changes_nothing_in_graphs_within_the_graph() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y] = [stream.alloc_zeroed(100)?, stream.alloc_zeroed(100)?];
        let (from, mut to) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc::<u32>(100)?);
        let host = PinnedBuffer::from_slice(&context, &[5u32; 100])?;
        // The driver could change the fill before it refuses the copy.
        let mut shapes = |filled: &mut DeviceBuffer<u32>, is_upload: bool| -> Result<_> {
            let fill = Graph::capture(&context, |stream| stream.fill(&mut *filled, 3))?;
            let copy = Graph::capture(&context, |stream| match is_upload {
                true => stream.upload(&host, &mut to),
                false => stream.copy(&from, &mut to),
            })?;
            let both = |stream: &Stream| fill.include(stream).and_then(|()| copy.include(stream));
            let two = Graph::capture(&context, both)?;
            let nested = Graph::capture(&context, |stream| two.include(stream))?;
            let conditional = Graph::capture(&context, |stream| {
                Condition::new(stream, 1)?.if_then(stream, both)
            })?;
            Ok([two, nested, conditional])
        };
        let (old, new) = (shapes(&mut x, false)?, shapes(&mut y, true)?);
        for (old, new) in old.iter().zip(&new) {
            stream.fill(&mut x, 0)?;
            let mut exec = old.instantiate()?;
            let refused = exec.update(new);
            assert!(matches!(refused, Err(Error::GraphUpdate(_))), "{refused:?}");
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&x)?, [3; 100]);
            assert_eq!(stream.download_vec(&y)?, [0; 100]);
        }
        Ok(())
    }
}
