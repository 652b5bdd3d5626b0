//~ E0277
//~ says write `&[f32]` for memory that the kernel reads
#[cfg(misuse)]
cuda_core::kernel! {
    fn sum(x: *const f32, n: u32);
}

#[cfg(not(misuse))]
cuda_core::kernel! {
    fn sum(x: &[f32], n: u32);
}

fn main() {}
