//! DLPack tensors that are handed over and taken back.

use cuda_core::SharedSlice;
use cuda_core::dlpack::{Consumer, ImportedTensor, Tensor};

use super::*;

/// Imports a tensor of that memory, as if another library had handed it over.
fn imported(memory: &SharedSlice<u32>, stream: &Stream) -> Result<SharedSlice<u32>> {
    let tensor = Tensor::shared(memory.clone(), &[memory.len()], None)?;
    let raw = tensor.into_raw(&Consumer::Stream(stream.clone()))?;
    // SAFETY: the tensor was made just now for this stream, and no other code uses it.
    let imported = unsafe { ImportedTensor::from_raw(raw.as_ptr(), stream) }?;
    Ok(imported.into_shared()?)
}

#[test]
fn a_tensor_that_nothing_used_costs_nothing() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let memory = SharedSlice::from(stream.alloc_zeroed::<u32>(16)?);
        driver.expect([], || imported(&memory, &stream).map(drop))?;
        stream.synchronize()
    });
}

#[test]
fn a_tensor_that_was_used_is_waited_for_before_it_is_deleted() {
    Counted::run(|driver| {
        let (_, stream, other) = two_streams()?;
        let memory = SharedSlice::from(stream.alloc_zeroed::<u32>(16)?);
        for user in [&stream, &other] {
            let tensor = imported(&memory, &stream)?;
            let mut copy = user.alloc::<u32>(16)?;
            user.copy(&tensor, &mut copy)?;
            let mark = driver.session.mark();
            drop(tensor);
            let names = driver.session.names_since(mark);
            assert!(names.contains(&"cuEventSynchronize"), "{names:?}");
        }
        stream.synchronize()
    });
}
