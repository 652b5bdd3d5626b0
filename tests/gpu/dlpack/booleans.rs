//! Tensors of booleans, whose elements are bytes here.

use cuda_core::Result;
use cuda_core::dlpack::DLDataType;
use support::{gpu_test, one_stream, refusal};

use super::{Theirs, rejected};

gpu_test! {
    needs 1;
    fn e_booleans_are_bytes() -> Result<()> {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<u8>(20)?;
        let mut theirs = Theirs::new::<u8>(memory.as_raw() as usize, &[20]);
        theirs.tensor.dl_tensor.dtype.code = DLDataType::BOOL;
        let (error, mask) = rejected(theirs.import(&stream)?.into_buffer::<i8>());
        assert!(refusal::<()>(Err(error)).contains("bool, not int8"));
        let mask = mask.into_buffer::<u8>()?;
        assert_eq!((mask.as_raw(), mask.len()), (memory.as_raw(), 20));
        Ok(())
    }
}
