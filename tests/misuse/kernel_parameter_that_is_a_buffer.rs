//~ E0277
//~ says write `&[f32]` for memory that the kernel reads
//~ says ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the trait
// The message points at the parameter's type, and not at the whole block.
#[cfg(misuse)]
cuda_core::kernel! {
    fn add(x: &[f32], y: &mut [f32]);
    fn sum(x: &cuda_core::DeviceBuffer<f32>, n: u32);
    fn scale(x: &mut [f32]);
}

#[cfg(not(misuse))]
cuda_core::kernel! {
    fn add(x: &[f32], y: &mut [f32]);
    fn sum(x: &[f32], n: u32);
    fn scale(x: &mut [f32]);
}

fn main() {}
