//! The CUDA runtime API, where a libcudart can be loaded.

use std::ffi::c_int;

type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;

/// `cudaGetDevice` of a loaded libcudart.
pub(crate) struct Runtime {
    get_device: GetDevice,
}

impl Runtime {
    /// Loads `CUDA_TESTS_LIBCUDART`, or what the system finds under the usual names.
    ///
    /// # Errors
    /// Why there is none.
    #[cfg(all(unix, not(miri)))]
    pub(crate) fn load() -> Result<Self, String> {
        use std::env;
        use std::ffi::{CString, c_void};

        use support::Driver;

        if Driver::selected() != Driver::Loaded || env::var_os("CUDA_SYS_LIBRARY").is_some() {
            return Err("the runtime API would load another driver than the one under test".into());
        }
        let names = match env::var("CUDA_TESTS_LIBCUDART") {
            Ok(path) => vec![path],
            Err(_) => ["libcudart.so.13", "libcudart.so.12", "libcudart.so"]
                .map(String::from)
                .to_vec(),
        };
        for name in &names {
            let name = CString::new(name.as_str()).map_err(|error| error.to_string())?;
            // SAFETY: a NUL-terminated name; the constructors of libcudart only set it up.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                continue;
            }
            // SAFETY: the library is open and stays so.
            let symbol = unsafe { libc::dlsym(library, c"cudaGetDevice".as_ptr()) };
            if symbol.is_null() {
                return Err(format!("{name:?} has no cudaGetDevice"));
            }
            // SAFETY: cudaGetDevice has been `cudaError_t cudaGetDevice(int *)` in every release,
            // and cudaError_t is an int.
            let get_device = unsafe { std::mem::transmute::<*mut c_void, GetDevice>(symbol) };
            return Ok(Self { get_device });
        }
        Err(format!("none of {names:?} can be loaded"))
    }

    /// There is no library to load.
    #[cfg(not(all(unix, not(miri))))]
    pub(crate) fn load() -> Result<Self, String> {
        Err("no dlopen here".into())
    }

    /// The ordinal of the device that the runtime API would use on this thread.
    #[track_caller]
    pub(crate) fn device(&self) -> u32 {
        let mut device = -1;
        // SAFETY: the pointer is valid for the one `int` that the call writes.
        let code = unsafe { (self.get_device)(&mut device) };
        assert_eq!(code, 0, "cudaGetDevice");
        u32::try_from(device).expect("an ordinal")
    }
}
