//~ E0277
// A reduction is given a source of `f32` and a destination of `f64`.
use cuda_core::nccl::{OnStream, Reduction};
use cuda_core::{DeviceBuffer, Result};

#[cfg(misuse)]
type Element = f64;
#[cfg(not(misuse))]
type Element = f32;

fn reduce<'a>(
    rank: OnStream<'_, 'a>,
    parts: &'a DeviceBuffer<f32>,
    sums: &'a mut DeviceBuffer<Element>,
) -> Result<()> {
    rank.all_reduce(parts, sums, Reduction::<f32>::Sum)
}

fn main() {
    let _ = reduce;
}
