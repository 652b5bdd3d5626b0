//~ E0277
// A kernel that reads `f32` is given a buffer of `f64`.
use cuda_core::{DeviceBuffer, Stream};

#[cfg(misuse)]
type Element = f64;
#[cfg(not(misuse))]
type Element = f32;

cuda_core::kernel! {
    fn sum(x: &[f32], n: u32);
}

fn main() {
    let _ = |stream: &Stream, sum: &sum, x: &DeviceBuffer<Element>| drop(sum.on(stream, x, 1));
}
