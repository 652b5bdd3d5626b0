//! What is done with elements of a type that Python names, by code and bits as DLPack does, and passes
//! as bytes.

use cuda_core::dlpack::{ArrayInterface, DLDataType, ImportedTensor, Tensor, TensorElement};
use cuda_core::{Complex32, Complex64, DeviceBuffer, Error, Result, Stream, bf16, f16};

/// A tensor, and the address of its elements.
type Made = Result<(Tensor, u64)>;

/// The address of a tensor that was taken over, and its length.
type Taken = Result<(u64, usize)>;

/// A shape, and strides.
type Layout<'a> = (&'a [usize], Option<&'a [usize]>);

/// For one type of elements.
pub(crate) struct Elements {
    data_type: DLDataType,
    /// A tensor of these numbers, by its shape and strides.
    pub(crate) tensor: fn(&Stream, &[u8], Layout<'_>) -> Made,
    /// Takes a tensor over, reads its numbers, and puts others in their place.
    pub(crate) exchange: fn(ImportedTensor, &Stream, &mut [u8], &[u8]) -> Taken,
    /// The entries of memory that the consumer may write, or may not.
    pub(crate) entries: fn(&mut DeviceBuffer<u8>, &Stream, bool) -> Result<ArrayInterface>,
}

impl Elements {
    pub(crate) fn of(code: u8, bits: u8) -> Result<&'static Self> {
        let named = DLDataType { code, bits, lanes: 1 };
        let unknown = Error::Driver { op: "interop", code: cuda_sys::CUDA_ERROR_INVALID_VALUE };
        ALL.iter().find(|it| it.data_type == named).ok_or(unknown)
    }

    const fn new<T: TensorElement>() -> Self {
        Self {
            data_type: T::DATA_TYPE,
            tensor: |stream, bytes, (shape, strides)| {
                let buffer = stream.upload_new(bytes)?.cast::<T>()?;
                let address = buffer.as_raw();
                Ok((Tensor::new(buffer, shape, strides)?, address))
            },
            exchange: |tensor, stream, found, left| {
                let buffer = tensor.into_buffer::<T>()?;
                let (address, length) = (buffer.as_raw(), buffer.len());
                let mut bytes = buffer.cast::<u8>()?;
                stream.download(&bytes, found)?;
                stream.upload(left, &mut bytes)?;
                stream.synchronize()?;
                Ok((address, length))
            },
            entries: |buffer, stream, writable| match writable {
                true => ArrayInterface::of_mut(buffer.as_view_mut().cast::<T>()?, stream),
                false => ArrayInterface::of(buffer.as_view().cast::<T>()?, stream),
            },
        }
    }
}

macro_rules! all {
    ($($element:ty)*) => { [$(Elements::new::<$element>()),*] };
}

static ALL: [Elements; 14] =
    all![i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 Complex32 Complex64];
