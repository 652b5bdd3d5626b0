//! Export and import of tensors.

use cuda_core::SharedSlice;
use cuda_core::dlpack::{Consumer, ImportedTensor, Tensor};

use super::{BATCH, SMALL};
use crate::bench::{Fixture, Goal, Measured, Operation, Unit};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("DLPack export + import + deletion", round_trip)
            .goal(Goal::Absolute(2000.0, Unit::Nanoseconds)),
    ]
}

/// Measures a round trip; there is no raw call to compare with.
fn round_trip(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let shared = SharedSlice::from(stream.alloc_zeroed::<u8>(SMALL)?);
    let consumer = Consumer::Stream(stream.clone());
    let ours = || {
        let tensor = Tensor::shared(shared.clone(), &[SMALL], None)?;
        let raw = tensor.into_raw(&consumer)?;
        // SAFETY: the tensor was made just now for this stream, and no other code uses it.
        let imported = unsafe { ImportedTensor::from_raw(raw.as_ptr(), stream) }?;
        imported.into_shared::<u8>().map(drop)?;
        Ok(())
    };
    let measured = fixture.pair(BATCH, ours, || cuda_sys::CUDA_SUCCESS)?;
    Ok(Measured::new(measured.unit, measured.ours, None))
}
