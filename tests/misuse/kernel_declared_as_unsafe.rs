//~ an error without a code
//~ says without generics, `unsafe` or a result
#[cfg(misuse)]
cuda_core::kernel! {
    unsafe fn sum(x: &[f32], n: u32);
}

#[cfg(not(misuse))]
cuda_core::kernel! {
    fn sum(x: &[f32], n: u32);
}

fn main() {}
