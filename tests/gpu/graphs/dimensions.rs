//! Changes of the dimensions of kernels in executables.

use cuda_core::{Error, Graph, Result};
use support::{gpu_test, kernels, one_stream};

gpu_test! {
    needs 1, cuda_12_0;
    fn l_a_kernels_grid_block_and_shared_memory_are_replaced() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::load(&context)?;
        let (fill, size) = (module.function("fill_words")?, module.function("shared_size")?);
        let (mut x, mut shared) = (stream.alloc::<u32>(300)?, stream.alloc::<u32>(1)?);
        // `fill_words(u32 *x, u32 value, u32 n)`, an element for each thread, and
        // `shared_size(u32 *to)`, which writes one element.
        macro_rules! fill {
            ($stream:expr, $grid:expr, $block:expr) => {
                $stream.kernel(&fill).grid($grid).block($block).arg(&mut x).arg(1u32).arg(300u32)
            };
        }
        macro_rules! size {
            ($stream:expr, $grid:expr, $bytes:expr) => {
                $stream.kernel(&size).grid($grid).block(1).dynamic_shared($bytes).arg(&mut shared)
            };
        }
        let graph = Graph::capture(&context, |stream| {
            // SAFETY: `x` has 300 elements.
            unsafe { fill!(stream, 1, 32).launch() }?;
            // SAFETY: `shared` has the one element.
            unsafe { size!(stream, 1, 64).launch() }
        })?;
        let nodes = graph.nodes()?;
        let (first, second) = (nodes[0].id(), nodes[1].id());
        let mut exec = graph.instantiate()?;
        for (grid, block, bytes) in [(1, 64, 128), (3, 64, 0), (2, 16, 1024), (4, 75, 1024)] {
            // SAFETY: as above.
            unsafe { exec.set_kernel(first, &mut fill!(stream, grid, block)) }?;
            // SAFETY: as above.
            unsafe { exec.set_kernel(second, &mut size!(stream, grid, bytes)) }?;
            stream.fill(&mut x, 0)?;
            exec.launch(&stream)?;
            let filled: u32 = stream.download_vec(&x)?.iter().sum();
            assert_eq!(filled, grid * block);
            assert_eq!(stream.download_vec(&shared)?, [bytes as u32]);
        }
        // Refused like a launch; the kernel stays unchanged.
        // SAFETY: as above.
        let refused = unsafe { exec.set_kernel(first, &mut fill!(stream, 1, 4096)) };
        assert!(matches!(refused, Err(Error::Launch(_))), "{refused:?}");
        stream.fill(&mut x, 0)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; 300]);
        Ok(())
    }
}
