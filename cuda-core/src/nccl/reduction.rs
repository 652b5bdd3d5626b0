//! The reductions that combine the ranks' elements.

use std::ffi::c_int;

use super::element::Element;
use super::raw;
use crate::types::bytes_of;

/// How the elements at the same place of all ranks are combined into one.
///
/// ```no_run
/// use cuda_core::nccl::{Ranks, Reduction};
///
/// # let contexts = cuda_core::Device::contexts(cuda_core::Device::all()?)?;
/// # let streams: Vec<_> = contexts.iter().map(|it| it.create_stream()).collect::<Result<_, _>>()?;
/// # let mut losses = streams.iter().map(|it| it.alloc_zeroed(1)).collect::<Result<Vec<_>, _>>()?;
/// let ranks = Ranks::init_all(&contexts)?;
/// ranks.on(&streams)?.all_reduce_in_place(&mut losses, Reduction::ScaledSum(0.5f32))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias("ncclRedOp_t"))]
pub enum Reduction<T> {
    /// The sum; integers wrap.
    Sum,
    /// The product.
    Product,
    /// The least element.
    Min,
    /// The greatest element.
    Max,
    /// The sum, divided by the number of ranks.
    Average,
    /// The sum of the elements, each multiplied by the factor that its rank gives:
    /// `ncclRedOpCreatePreMulSum`.
    #[doc(alias("ncclRedOpCreatePreMulSum"))]
    ScaledSum(T),
}

/// A reduction as NCCL's functions take it.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct RawReduction {
    /// The `ncclDataType_t` of the elements.
    pub(super) element: c_int,
    pub(super) operator: Operator,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Operator {
    /// An `ncclRedOp_t`.
    Number(c_int),
    /// The bytes of the factor, followed by zeros.
    ScaledSum(u64),
}

impl<T: Element> Reduction<T> {
    pub(super) fn raw(self) -> RawReduction {
        let operator = match self {
            Self::Sum => Operator::Number(raw::SUM),
            Self::Product => Operator::Number(raw::PROD),
            Self::Min => Operator::Number(raw::MIN),
            Self::Max => Operator::Number(raw::MAX),
            Self::Average => Operator::Number(raw::AVG),
            Self::ScaledSum(factor) => {
                let mut bytes = [0; size_of::<u64>()];
                // No element is larger.
                bytes[..size_of::<T>()].copy_from_slice(bytes_of(&[factor]));
                Operator::ScaledSum(u64::from_ne_bytes(bytes))
            }
        };
        RawReduction { element: T::TYPE, operator }
    }
}
