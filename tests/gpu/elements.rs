//! Grids sized to cover a number of elements.

use cuda_core::{Error, Graph, Launch, LaunchError, Result};
use support::{gpu_test, kernels, one_stream, refusal};

use crate::launches::is_limit;

gpu_test! {
    needs 1;
    fn m_rows_and_columns_have_a_thread_each() -> Result<()> {
        let (context, stream) = one_stream()?;
        let increment = kernels::get(&context, "increment")?;
        for (width, height, threads) in [(1, 1, 256), (32, 8, 256), (8, 33, 1280), (33, 8, 512)] {
            let mut count = stream.alloc_zeroed::<u32>(1)?;
            let mut launch = stream.kernel(&increment).elements_2d(width, height).arg(&mut count);
            // SAFETY: `increment(u32 *x)` counts in one element.
            unsafe { launch.launch() }?;
            assert_eq!(stream.download_vec(&count)?, [threads], "{height} rows of {width}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_blocks_of_any_size_cover_the_elements() -> Result<()> {
        let (context, stream) = one_stream()?;
        let increment = kernels::get(&context, "increment")?;
        let shape = |launch: &Launch<'_>| (launch.get_grid(), launch.get_block());
        let expected = |grid: (u32, u32), block: (u32, u32)| (grid.into(), block.into());
        let launch = || stream.kernel(&increment);
        assert_eq!(shape(&launch().elements(1000)), expected((4, 1), (256, 1)));
        assert_eq!(shape(&launch().elements(1000).block(96)), expected((11, 1), (96, 1)));
        assert_eq!(shape(&launch().block(96).elements(1000)), expected((11, 1), (96, 1)));
        assert_eq!(shape(&launch().elements_2d(100, 20).block((16, 16))), expected((7, 2), (16, 16)));
        assert_eq!(shape(&launch().block((16, 16)).elements_2d(100, 20)), expected((7, 2), (16, 16)));
        // An explicit grid overrides the computed one, whatever the block.
        assert_eq!(shape(&launch().elements(1000).grid(3).block(96)), expected((3, 1), (96, 1)));
        let mut count = stream.alloc_zeroed::<u32>(1)?;
        // SAFETY: `increment(u32 *x)` counts in one element.
        unsafe { launch().elements(1000).block(96).arg(&mut count).launch() }?;
        assert_eq!(stream.download_vec(&count)?, [11 * 96]);
        // SAFETY: the launch is refused.
        let refused = unsafe { launch().elements(1000).block(0).arg(&mut count).launch() };
        is_limit(refused, "block.x");
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn m04_no_elements() -> Result<()> {
        let (context, stream) = one_stream()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(4)?;
        let no_element = |by: u32| stream.kernel(&add_one).elements(0).arg(by);
        // SAFETY: the launch is refused, since an argument is missing.
        let refused = unsafe { no_element(4).launch() };
        assert!(
            matches!(refused, Err(Error::Launch(ref it)) if matches!(**it, LaunchError::ArgumentCount { .. })),
            "{refused:?}"
        );
        for (width, height) in [(0, 4), (4, 0), (0, 0)] {
            let launch = stream.kernel(&add_one).elements_2d(width, height);
            // SAFETY: no thread runs.
            unsafe { launch.arg(&mut x).arg(4u32).launch() }?;
        }
        let graph = Graph::capture(&context, |stream| {
            let mut launch = stream.kernel(&add_one).elements(0).block(32).arg(&mut x).arg(4u32);
            // SAFETY: no thread runs.
            unsafe { launch.launch() }?;
            stream.fill(&mut x, 7)
        })?;
        let nodes = graph.nodes()?;
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        let mut exec = graph.instantiate()?;
        let mut empty = stream.kernel(&add_one).elements(0).arg(&mut x).arg(4u32);
        // SAFETY: the change is refused.
        let refused = unsafe { exec.set_kernel(nodes[0].id(), &mut empty) };
        assert_eq!(refusal(refused), "a launch for no elements is no operation");
        assert_eq!(stream.download_vec(&x)?, [0; 4]);
        // An explicit grid overrides the computed one.
        // SAFETY: the buffer has 4 elements.
        unsafe { stream.kernel(&add_one).elements(0).grid(1).arg(&mut x).arg(4u32).launch() }?;
        assert_eq!(stream.download_vec(&x)?, [1; 4]);
        Ok(())
    }
}
