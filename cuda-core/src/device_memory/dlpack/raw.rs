//! The structs and constants of `dlpack.h`, in its layout.

use std::ffi::c_void;
use std::fmt;

/// `DLPackVersion`. Structs of an unknown major version have an unknown layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct DLPackVersion {
    /// The major version; another major version means another layout.
    pub major: u32,
    /// The minor version, which counts additions.
    pub minor: u32,
}

/// `DLDevice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDevice {
    /// `DLDeviceType`: [`CUDA`](Self::CUDA), [`CUDA_MANAGED`](Self::CUDA_MANAGED), or that of another
    /// kind of device.
    pub device_type: i32,
    /// The device's ordinal.
    pub device_id: i32,
}

impl DLDevice {
    /// `kDLCUDA`: memory of one device.
    pub const CUDA: i32 = 2;
    /// `kDLCUDAManaged`: managed memory.
    pub const CUDA_MANAGED: i32 = 13;
}

/// `DLDataType`: the type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDataType {
    /// `DLDataTypeCode`.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// The number of lanes: 1, except for vectors.
    pub lanes: u16,
}

impl DLDataType {
    /// `kDLInt`.
    pub const INT: u8 = 0;
    /// `kDLUInt`.
    pub const UINT: u8 = 1;
    /// `kDLFloat`.
    pub const FLOAT: u8 = 2;
    /// `kDLBfloat`.
    pub const BFLOAT: u8 = 4;
    /// `kDLComplex`.
    pub const COMPLEX: u8 = 5;
    /// `kDLBool`.
    pub const BOOL: u8 = 6;
}

impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, bits, lanes } = *self;
        match code {
            Self::INT => write!(f, "int{bits}")?,
            Self::UINT => write!(f, "uint{bits}")?,
            Self::FLOAT => write!(f, "float{bits}")?,
            Self::BFLOAT => write!(f, "bfloat{bits}")?,
            Self::COMPLEX => write!(f, "complex{bits}")?,
            Self::BOOL if bits == 8 => write!(f, "bool")?,
            code => write!(f, "code {code} of {bits} bits")?,
        }
        if lanes == 1 { Ok(()) } else { write!(f, "x{lanes}") }
    }
}

/// `DLTensor`: the place, shape and type of the elements. The producer owns what its pointers refer to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The device address to which `byte_offset` is added.
    pub data: *mut c_void,
    /// The device that the memory is on.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The `ndim` lengths of the dimensions.
    pub shape: *mut i64,
    /// The `ndim` strides in elements; null if the tensor is compact, the last dimension innermost.
    pub strides: *mut i64,
    /// The number of bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, the struct of DLPack before 1.0, in a capsule named `dltensor`.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The elements.
    pub dl_tensor: DLTensor,
    /// A pointer for the producer's own use.
    pub manager_ctx: *mut c_void,
    /// Gives the memory back: called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `DLManagedTensorVersioned`, the struct of DLPack 1.x, in a capsule named `dltensor_versioned`.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The producer's version of DLPack.
    pub version: DLPackVersion,
    /// A pointer for the producer's own use.
    pub manager_ctx: *mut c_void,
    /// Gives the memory back: called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Flags: [`READ_ONLY`](Self::READ_ONLY) and others.
    pub flags: u64,
    /// The elements.
    pub dl_tensor: DLTensor,
}

impl DLManagedTensorVersioned {
    /// `DLPACK_FLAG_BITMASK_READ_ONLY`: the consumer must not write.
    pub const READ_ONLY: u64 = 1;
}

/// The DLPack version to which these structs belong.
pub(super) const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Checks the layout that a C compiler gives `dlpack.h` on 64-bit machines.
    #[test]
    fn the_structs_are_those_of_dlpack_h() {
        assert_eq!((size_of::<DLPackVersion>(), size_of::<DLDevice>()), (8, 8));
        assert_eq!((size_of::<DLDataType>(), align_of::<DLDataType>()), (4, 2));
        assert_eq!((size_of::<DLTensor>(), align_of::<DLTensor>()), (48, 8));
        assert_eq!(offset_of!(DLTensor, data), 0);
        assert_eq!(offset_of!(DLTensor, device), 8);
        assert_eq!(offset_of!(DLTensor, ndim), 16);
        assert_eq!(offset_of!(DLTensor, dtype), 20);
        assert_eq!(offset_of!(DLTensor, shape), 24);
        assert_eq!(offset_of!(DLTensor, strides), 32);
        assert_eq!(offset_of!(DLTensor, byte_offset), 40);
        assert_eq!(size_of::<DLManagedTensor>(), 64);
        assert_eq!(offset_of!(DLManagedTensor, manager_ctx), 48);
        assert_eq!(offset_of!(DLManagedTensor, deleter), 56);
        assert_eq!(size_of::<DLManagedTensorVersioned>(), 80);
        assert_eq!(offset_of!(DLManagedTensorVersioned, manager_ctx), 8);
        assert_eq!(offset_of!(DLManagedTensorVersioned, deleter), 16);
        assert_eq!(offset_of!(DLManagedTensorVersioned, flags), 24);
        assert_eq!(offset_of!(DLManagedTensorVersioned, dl_tensor), 32);
    }

    #[test]
    fn types_are_named_as_in_python() {
        let name = |code, bits, lanes| DLDataType { code, bits, lanes }.to_string();
        assert_eq!(name(DLDataType::FLOAT, 32, 1), "float32");
        assert_eq!(name(DLDataType::INT, 8, 4), "int8x4");
        assert_eq!(name(DLDataType::BOOL, 8, 1), "bool");
        assert_eq!(name(7, 8, 1), "code 7 of 8 bits");
    }
}
