//~ E0277
// Arrays have no format for numbers of 64 bits.
use cuda_core::image::CudaArray;

#[cfg(misuse)]
struct Images(Vec<CudaArray<u64>>);
#[cfg(not(misuse))]
struct Images(Vec<CudaArray<[u32; 2]>>);

fn count(images: &Images) -> usize {
    images.0.len()
}

fn main() {
    let _: fn(&Images) -> usize = count;
}
