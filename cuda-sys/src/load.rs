//! Finds the driver's library and fills the table, once a process.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::OnceLock;

use crate::DriverApi;

static TABLE: OnceLock<(DriverApi, Option<LoadError>)> = OnceLock::new();

/// Why no driver was loaded: what was tried, and what the loader answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    attempts: Vec<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no CUDA driver could be loaded: {}", self.attempts.join("; "))
    }
}

impl std::error::Error for LoadError {}

/// The table that every free function of this crate goes through.
pub(crate) fn table() -> &'static DriverApi {
    &TABLE.get_or_init(open).0
}

/// Loads the driver at the first call and returns its table.
pub fn load() -> Result<&'static DriverApi, LoadError> {
    let (api, error) = TABLE.get_or_init(open);
    match error {
        None => Ok(api),
        Some(error) => Err(error.clone()),
    }
}

/// Fills the table from `resolve` instead of a library. `false`: it was filled already.
///
/// # Safety
/// Each address that is not null is a function with the signature of that symbol, and stays so for
/// the life of the process.
pub unsafe fn install(mut resolve: impl FnMut(&CStr) -> *const c_void) -> bool {
    let mut installed = false;
    TABLE.get_or_init(|| {
        installed = true;
        // SAFETY: the caller's own promise.
        (unsafe { DriverApi::from_resolver(&mut resolve) }, None)
    });
    installed
}

fn open() -> (DriverApi, Option<LoadError>) {
    let name = std::env::var("CUDA_SYS_LIBRARY").unwrap_or_else(|_| "libcuda.so.1".into());
    let c = std::ffi::CString::new(name.clone()).unwrap();
    // SAFETY: placeholder.
    let handle = unsafe { libc::dlopen(c.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return (DriverApi::absent(), Some(LoadError { attempts: vec![name] }));
    }
    let mut resolve = |symbol: &CStr| {
        // SAFETY: placeholder.
        unsafe { libc::dlsym(handle, symbol.as_ptr()) }.cast_const()
    };
    // SAFETY: placeholder.
    (unsafe { DriverApi::from_resolver(&mut resolve) }, None)
}
