//! Tensor maps, by which a kernel copies tiles of a tensor between global and shared memory in
//! bulk.

use std::ptr;

use cuda_sys::{CUtensorMap, CUtensorMapDataType, symbol as cu};

use super::launch::argument::{Arguments, Touched, sealed};
use crate::dlpack::{DLDataType, TensorElement};
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView};
use crate::types::{Pod, bytes_of};
use crate::util::{debug_by, raw_enum, setters};

raw_enum! {
    /// The order of a tile's 16-byte units in shared memory. Swizzling lets threads that read a
    /// column of the tile use different banks.
    #[derive(Default)]
    TensorSwizzle: CUtensorMapSwizzle {
        /// The order of global memory.
        #[default]
        None = CU_TENSOR_MAP_SWIZZLE_NONE,
        /// Exchanged within 32 bytes.
        Bytes32 = CU_TENSOR_MAP_SWIZZLE_32B,
        /// Exchanged within 64 bytes.
        Bytes64 = CU_TENSOR_MAP_SWIZZLE_64B,
        /// Exchanged within 128 bytes.
        Bytes128 = CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

raw_enum! {
    /// How many bytes of global memory an access brings into the L2 cache.
    #[derive(Default)]
    TensorPromotion: CUtensorMapL2promotion {
        /// Only the bytes that the access needs.
        #[default]
        None = CU_TENSOR_MAP_L2_PROMOTION_NONE,
        /// 64 bytes.
        Bytes64 = CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        /// 128 bytes.
        Bytes128 = CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        /// 256 bytes.
        Bytes256 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

raw_enum! {
    /// The value of a tile's elements outside the tensor.
    #[derive(Default)]
    TensorFill: CUtensorMapFloatOOBfill {
        /// Zeroes.
        #[default]
        Zero = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        /// A NaN that multiplications and additions take for zero; only for floating-point
        /// elements.
        Nan = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    }
}

/// Returns the driver's name for elements of this type; [`None`] for complex numbers, which it does
/// not know.
fn data_type<T: TensorElement>() -> Option<CUtensorMapDataType> {
    let DLDataType { code, bits, .. } = T::DATA_TYPE;
    Some(match (code, bits) {
        (DLDataType::UINT | DLDataType::INT, 8) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        (DLDataType::UINT | DLDataType::INT, 16) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        (DLDataType::UINT, 32) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        (DLDataType::UINT, 64) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        (DLDataType::INT, 32) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_INT32,
        (DLDataType::INT, 64) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_INT64,
        (DLDataType::FLOAT, 16) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        (DLDataType::FLOAT, 32) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        (DLDataType::FLOAT, 64) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        (DLDataType::BFLOAT, _) => cuda_sys::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => return None,
    })
}

/// The shape of a tensor, and of the tiles that kernels copy.
///
/// Lists begin with the innermost dimension, whose elements are adjacent in memory.
///
/// ```
/// use cuda_core::tensor_map::{TensorSwizzle, TensorTiles};
///
/// // A matrix of 512 rows and 1000 columns of `f16`, each row padded to 1024 elements.
/// let tiles = TensorTiles::new([1000, 512], [64, 32])
///     .with_strides([2 * 1024])
///     .with_swizzle(TensorSwizzle::Bytes128);
/// assert_eq!(tiles.tile, [64, 32]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorTiles {
    /// Size of the tensor in each dimension, in elements.
    pub shape: Vec<usize>,
    /// Size of a tile in each dimension, in elements: at most 256.
    pub tile: Vec<usize>,
    /// Bytes from one element to the next in each dimension but the innermost: multiples of 16.
    /// [`None`] for a tensor without gaps.
    pub strides: Option<Vec<usize>>,
    /// Step in the tensor from one element of a tile to the next in each dimension, in elements: at
    /// most 8. A tile of 8 with steps of 2 has 4 elements. Must be 1 in the innermost dimension, in
    /// which the device takes each element.
    pub steps: Vec<usize>,
    /// The order of a tile's units in shared memory.
    pub swizzle: TensorSwizzle,
    /// How much an access brings into the L2 cache.
    pub promotion: TensorPromotion,
    /// The value of a tile's elements outside the tensor.
    pub fill: TensorFill,
}

impl TensorTiles {
    /// Describes tiles of a tensor without gaps, with steps of 1.
    pub fn new(shape: impl Into<Vec<usize>>, tile: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        Self {
            steps: vec![1; shape.len()],
            shape,
            tile: tile.into(),
            strides: None,
            swizzle: TensorSwizzle::default(),
            promotion: TensorPromotion::default(),
            fill: TensorFill::default(),
        }
    }

    setters! {
        /// Sets [`strides`](Self::strides).
        with_strides(strides: impl Into<Vec<usize>>) => strides = Some(strides.into());
        /// Sets [`steps`](Self::steps).
        with_steps(steps: impl Into<Vec<usize>>) => steps = steps.into();
        /// Sets [`swizzle`](Self::swizzle).
        with_swizzle(swizzle: TensorSwizzle) => swizzle = swizzle;
        /// Sets [`promotion`](Self::promotion).
        with_promotion(promotion: TensorPromotion) => promotion = promotion;
        /// Sets [`fill`](Self::fill).
        with_fill(fill: TensorFill) => fill = fill;
    }
}

/// A map of a tensor in device memory, by which a kernel copies tiles of the tensor between global
/// and shared memory in bulk (TMA, from compute capability 9.0 on). The kernel's parameter is
/// `const __grid_constant__ CUtensorMap`.
///
/// As an argument of a launch, a map reads or writes the tensor's memory like `&buffer` or
/// `&mut buffer`: the launch is ordered with the memory's other uses, and keeps the memory. `&map`
/// can be passed to any number of launches, and so can `&mut map` of a map for writing.
///
/// ```no_run
/// use cuda_core::tensor_map::{TensorMap, TensorTiles};
///
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("transpose")?;
/// let from = stream.upload_new(&[1.0f32; 512 * 256])?;
/// let mut to = stream.alloc::<f32>(256 * 512)?;
/// let source = TensorMap::reading(&from, &TensorTiles::new([512, 256], [32, 32]))?;
/// let target = TensorMap::writing(&mut to, &TensorTiles::new([256, 512], [32, 32]))?;
/// let mut launch = stream.kernel(&function).grid((16, 8)).block(256).arg(&source).arg(target);
/// // SAFETY: the kernel `transpose(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap)`
/// // reads by its first parameter and writes by its second.
/// unsafe { launch.launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias("CUtensorMap", "TMA", "TensorMapDescriptor"))]
pub struct TensorMap<V> {
    // INVARIANT: describes only elements of `memory`.
    raw: CUtensorMap,
    memory: V,
}

/// The driver call, as errors name it.
const OP: &str = "cuTensorMapEncodeTiled";

impl<'a, T: TensorElement> TensorMap<DeviceSlice<'a, T>> {
    /// Makes a map of memory that kernels read: `cuTensorMapEncodeTiled`, from CUDA 12.0 on.
    /// Enqueues no work.
    ///
    /// # Errors
    /// [`Error::Invalid`] for tiles that the hardware does not support, and for a tensor that
    /// exceeds the memory; the driver's.
    #[doc(alias("cuTensorMapEncodeTiled"))]
    pub fn reading(memory: impl IntoView<DeviceSlice<'a, T>>, tiles: &TensorTiles) -> Result<Self> {
        let memory = memory.into();
        Ok(Self { raw: encode(&memory, tiles)?, memory })
    }
}

impl<'a, T: TensorElement> TensorMap<DeviceSliceMut<'a, T>> {
    /// Makes a map of memory that kernels write, and may read: `cuTensorMapEncodeTiled`, from CUDA 12.0
    /// on. Enqueues no work.
    ///
    /// # Errors
    /// As [`TensorMap::reading`].
    #[doc(alias("cuTensorMapEncodeTiled"))]
    pub fn writing(
        memory: impl IntoView<DeviceSliceMut<'a, T>>,
        tiles: &TensorTiles,
    ) -> Result<Self> {
        let memory = memory.into();
        Ok(Self { raw: encode(&memory.as_view(), tiles)?, memory })
    }
}

impl<V> TensorMap<V> {
    /// The map as kernels and other libraries take it, valid while the memory is.
    pub fn as_raw(&self) -> &CUtensorMap {
        &self.raw
    }
}

impl<'a, V: sealed::TouchMemory<'a>> sealed::PushArgument<'a> for TensorMap<V> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        arguments.push(bytes_of(&self.raw.opaque));
        self.memory.touch(touched);
    }
}

impl<'a, T: Pod> sealed::PushArgument<'a> for &TensorMap<DeviceSlice<'a, T>> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        self.clone().push(arguments, touched);
    }
}

impl<'a, T: Pod> sealed::PushArgument<'a> for &'a mut TensorMap<DeviceSliceMut<'_, T>> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        TensorMap { raw: self.raw, memory: self.memory.reborrow() }.push(arguments, touched);
    }
}

debug_by! { [V: std::fmt::Debug] TensorMap<V>: |it| "TensorMap" { memory: it.memory; .. } }

fn encode<T: TensorElement>(
    memory: &DeviceSlice<'_, T>,
    tiles: &TensorTiles,
) -> Result<CUtensorMap> {
    let address = memory.as_raw();
    let unknown = || Error::invalid(OP, "tensor maps have no complex numbers");
    let data_type = data_type::<T>().ok_or_else(unknown)?;
    let strides = tiles.checked::<T>(address, memory.byte_len())?;
    // `checked` ensured that each number fits.
    let shape: Vec<u64> = tiles.shape.iter().map(|len| *len as u64).collect();
    let [tile, steps] = [&tiles.tile, &tiles.steps]
        .map(|list| list.iter().map(|len| *len as u32).collect::<Vec<_>>());
    // The call needs a context, although it does nothing there.
    memory.context().ask(OP, CUtensorMap::default(), |raw| {
        // SAFETY: the call reads one number per dimension of the tensor from each list, and one
        // fewer from the strides; the lists have that many. It writes one map, to an exclusive
        // borrow. It does not access the memory.
        unsafe {
            cu::cuTensorMapEncodeTiled(
                raw,
                data_type,
                shape.len() as u32,
                ptr::without_provenance_mut(address as usize),
                shape.as_ptr(),
                strides.as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                cuda_sys::CU_TENSOR_MAP_INTERLEAVE_NONE,
                tiles.swizzle.as_raw(),
                tiles.promotion.as_raw(),
                tiles.fill.as_raw(),
            )
        }
    })
}

impl TensorTiles {
    /// Returns the strides. Checks what the call's reference excludes, since the driver's error
    /// explains nothing.
    fn checked<T: TensorElement>(&self, address: u64, bytes: usize) -> Result<Vec<u64>> {
        let Self { shape, tile, steps, .. } = self;
        let (rank, size) = (shape.len(), size_of::<T>());
        let require = |holds: bool, why: &'static str| Error::unless(holds, OP, why);
        require((1..=5).contains(&rank), "a tensor has one dimension to five")?;
        let alike = tile.len() == rank && steps.len() == rank;
        require(alike, "shape, tile and steps have the same number of dimensions")?;
        require(address % 16 == 0, "the memory begins at a multiple of 16 bytes")?;
        let lengths = shape.iter().all(|len| (1..=1 << 32).contains(len));
        require(lengths, "a dimension has one element to 2^32")?;
        let tiles = tile.iter().all(|len| (1..=256).contains(len));
        require(tiles, "a tile has one element to 256 in each dimension")?;
        let in_range = steps.iter().all(|step| (1..=8).contains(step));
        require(in_range, "steps are from 1 to 8")?;
        // "TMA doesn't support the stride for dimension zero": the driver ignores any other step
        // there.
        require(steps[0] == 1, "the innermost dimension has steps of 1")?;
        let row = tile[0] * size;
        require(row % 16 == 0, "the innermost dimension of a tile has a multiple of 16 bytes")?;
        let most = match self.swizzle {
            TensorSwizzle::None => usize::MAX,
            TensorSwizzle::Bytes32 => 32,
            TensorSwizzle::Bytes64 => 64,
            TensorSwizzle::Bytes128 => 128,
        };
        require(
            row <= most,
            "the innermost dimension of a tile has at most the bytes of the swizzle",
        )?;
        let fits = self.fill == TensorFill::Zero
            || matches!(T::DATA_TYPE.code, DLDataType::FLOAT | DLDataType::BFLOAT);
        require(fits, "only floating-point numbers can be NaN")?;
        let strides = match &self.strides {
            Some(strides) => strides.iter().map(|stride| *stride as u64).collect(),
            None => dense(shape, size),
        };
        require(
            strides.len() == rank - 1,
            "there is a stride for each dimension but the innermost",
        )?;
        let multiples = strides.iter().all(|stride| stride % 16 == 0 && *stride < 1 << 40);
        require(multiples, "strides are multiples of 16 bytes, below 2^40")?;
        // The sum stays below 2^75.
        let last = shape.iter().skip(1).zip(&strides);
        let last: u128 = last.map(|(len, stride)| (*len as u128 - 1) * u128::from(*stride)).sum();
        let end = last + shape[0] as u128 * size as u128;
        Error::unless_with(end <= bytes as u128, OP, || {
            format!(
                "the tensor has {end} bytes from its first to its last element, and the memory {bytes}"
            )
        })?;
        Ok(strides)
    }
}

/// Returns the strides of a tensor without gaps.
fn dense(shape: &[usize], size: usize) -> Vec<u64> {
    let inner = shape.iter().take(shape.len() - 1);
    let strides = inner.scan(size as u64, |stride, len| {
        *stride = stride.saturating_mul(*len as u64);
        Some(*stride)
    });
    strides.collect()
}
