//! Tensors in captures.

use cuda_core::dlpack::{Consumer, ImportedTensor, Tensor};
use cuda_core::{Graph, Result};
use support::{gpu_test, one_stream, refusal};

use super::{HandedOver, rejected};
use crate::graphs::not_captured;

// Work of other streams on the memory would wait for a point of the capture, and so join the capture.
gpu_test! {
    needs 1;
    fn l08_tensors_are_not_taken_in_the_order_of_a_captured_stream() -> Result<()> {
        let (context, stream) = one_stream()?;
        let other = context.create_stream()?;
        let tensor = Tensor::new(stream.alloc_zeroed::<u32>(64)?, &[64], None)?;
        stream.synchronize()?;
        let raw = HandedOver::new(tensor, &Consumer::Synchronized)?;
        let old = Tensor::new(stream.alloc::<u32>(64)?, &[64], None)?;
        let old = old.into_raw_unversioned(&Consumer::Synchronized)?;
        Graph::capture(&context, |captured| {
            // SAFETY: the tensor is live, and no work uses it; it is refused, so it stays the test's.
            let refused = unsafe { ImportedTensor::from_raw(raw.0.as_ptr(), captured) };
            not_captured(refused.map(std::mem::forget), "dlpack::ImportedTensor::from_raw");
            // SAFETY: as above.
            let refused = unsafe { ImportedTensor::from_raw_unversioned(old.as_ptr(), captured) };
            not_captured(refused.map(std::mem::forget), "dlpack::ImportedTensor::from_raw");
            Ok(())
        })?;
        // SAFETY: the tensor is live, and no work uses it.
        drop(unsafe { ImportedTensor::from_raw_unversioned(old.as_ptr(), &stream) }?);
        // SAFETY: as above.
        let imported = unsafe { ImportedTensor::from_raw(raw.give(), &stream) }?;
        let mut buffer = imported.into_buffer::<u32>()?;
        other.fill(&mut buffer, 5)?;
        assert_eq!(other.download_vec(&buffer)?, [5; 64]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s02_memory_of_a_graph_that_is_gone_is_not_handed_over() -> Result<()> {
        let (context, _stream) = one_stream()?;
        let mut escaped = None;
        let graph = Graph::capture(&context, |stream| {
            let mut inner = stream.alloc_in_graph::<f32>(100)?;
            stream.fill(&mut inner, 1.0)?;
            escaped = Some(inner);
            Ok(())
        })?;
        drop(graph);
        let tensor = Tensor::new(escaped.expect("captured above"), &[100], None)?;
        let (error, _) = rejected(tensor.into_raw(&Consumer::Synchronized));
        assert!(refusal::<()>(Err(error)).contains("graph"));
        Ok(())
    }
}
