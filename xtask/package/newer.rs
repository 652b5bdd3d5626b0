//! Calls functions that the linked driver is too old to have.

use cuda_core::{Device, Library};
use cuda_sys::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Device::get(0)?.context()?;
    let newer = Some(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    let mut id = 0;
    let called = unsafe { symbol::cuCtxGetId(context.as_raw(), &mut id) };
    assert_eq!(Some(called), newer);
    assert_eq!(context.driver_id().unwrap_err().code(), newer);
    let ptx = ".version 7.0\n.target sm_50\n.address_size 64\n";
    assert_eq!(Library::from_ptx(ptx).unwrap_err().code(), newer);

    let api = load()?;
    let missing = api.missing();
    assert!(missing.contains(&"cuCtxGetId") && missing.contains(&"cuLibraryLoadData"));
    assert!(!missing.contains(&"cuInit") && !missing.contains(&"cuMemAlloc_v2"));
    assert_eq!(unsafe { (api.cuCtxGetId)(context.as_raw(), &mut id) }, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    println!("{} newer ones answer 36", missing.len());
    Ok(())
}
