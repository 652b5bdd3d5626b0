//! Calls the driver by its table alone, so that nothing else makes the linker keep the library.

fn main() {
    let api = cuda_sys::load().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(unsafe { (api.cuInit)(0) }, cuda_sys::CUDA_SUCCESS);
    println!("{} symbols are missing", api.missing().len());
}
