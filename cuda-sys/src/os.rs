//! The system's loader of libraries.

pub use system::{Library, is_privileged};

/// The driver itself; `libcuda.so` may be the toolkit's stub, which only links.
#[cfg(not(windows))]
pub const DRIVER: &str = "libcuda.so.1";
/// The driver; it lies in the system's directory.
#[cfg(windows)]
pub const DRIVER: &str = "nvcuda.dll";

/// Miri has no dynamic loader.
#[cfg(miri)]
mod system {
    use std::ffi::{CStr, OsStr, c_void};

    /// A loaded library, of which there are none.
    pub enum Library {}

    impl Library {
        /// Loads nothing.
        ///
        /// # Errors
        /// Always.
        ///
        /// # Safety
        /// None.
        pub unsafe fn open(_: &OsStr) -> Result<Self, String> {
            Err("not available under Miri".to_owned())
        }

        /// The symbol of that name.
        pub fn symbol(&self, _: &CStr) -> *const c_void {
            match *self {}
        }
    }

    /// Whether the process runs with more rights than whoever started it.
    pub fn is_privileged() -> bool {
        false
    }
}

#[cfg(all(unix, not(miri)))]
mod system {
    use std::ffi::{CStr, CString, OsStr, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::ptr::NonNull;

    /// A loaded library, which stays loaded.
    // INVARIANT: a handle of dlopen, which is never closed.
    pub struct Library(NonNull<c_void>);

    impl Library {
        /// Loads the library of that name or path.
        ///
        /// # Errors
        /// What the loader answered.
        ///
        /// # Safety
        /// Loading runs the library's initialisers: they must be sound to run in this process, on this
        /// thread.
        pub unsafe fn open(name: &OsStr) -> Result<Self, String> {
            let name = CString::new(name.as_bytes())
                .map_err(|_| "the name holds a NUL byte".to_owned())?;
            // SAFETY: the name is NUL-terminated and read during the call only; the initialisers
            // that run are the caller's promise.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            NonNull::new(handle).map(Self).ok_or_else(error)
        }

        /// The symbol of that name; null if there is none.
        pub fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: by the invariant a handle of dlopen; the name is NUL-terminated and read
            // during the call only.
            unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }.cast_const()
        }
    }

    /// The loader's last complaint on this thread.
    fn error() -> String {
        // SAFETY: no precondition.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the loader gave no reason".to_owned();
        }
        // SAFETY: not null, so a C string, valid until the thread's next call to the loader.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// Whether the process runs with more rights than whoever started it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn is_privileged() -> bool {
        // SAFETY: no precondition.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }

    /// Whether the process runs with more rights than whoever started it.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub fn is_privileged() -> bool {
        // SAFETY: no precondition.
        let (user, effective) = (unsafe { libc::getuid() }, unsafe { libc::geteuid() });
        // SAFETY: no precondition.
        let (group, effective_group) = (unsafe { libc::getgid() }, unsafe { libc::getegid() });
        user != effective || group != effective_group
    }
}

#[cfg(all(windows, not(miri)))]
mod system {
    use std::ffi::{CStr, OsStr, c_char, c_void};
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::{self, NonNull};

    const LOAD_WITH_ALTERED_SEARCH_PATH: u32 = 0x8;
    const LOAD_LIBRARY_SEARCH_SYSTEM32: u32 = 0x800;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn LoadLibraryExW(name: *const u16, file: *mut c_void, flags: u32) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *const c_void;
    }

    /// A loaded library, which stays loaded.
    // INVARIANT: a handle of LoadLibraryExW, which is never freed.
    pub struct Library(NonNull<c_void>);

    impl Library {
        /// Loads the library of that name or path.
        ///
        /// # Errors
        /// What the loader answered.
        ///
        /// # Safety
        /// Loading runs the library's initialisers: they must be sound to run in this process, on this
        /// thread.
        pub unsafe fn open(name: &OsStr) -> Result<Self, String> {
            let flags = if name == super::DRIVER {
                // Not from the current directory, where anybody may have put one.
                LOAD_LIBRARY_SEARCH_SYSTEM32
            } else if Path::new(name).is_absolute() {
                // What the library itself needs may lie beside it.
                LOAD_WITH_ALTERED_SEARCH_PATH
            } else {
                0
            };
            let wide: Vec<u16> = name.encode_wide().chain([0]).collect();
            // SAFETY: the name ends in a zero; the second argument is reserved and null; the
            // initialisers that run are the caller's promise.
            let module = unsafe { LoadLibraryExW(wide.as_ptr(), ptr::null_mut(), flags) };
            NonNull::new(module)
                .map(Self)
                .ok_or_else(|| std::io::Error::last_os_error().to_string())
        }

        /// The symbol of that name; null if there is none.
        pub fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: by the invariant a loaded module; the name is NUL-terminated and read during
            // the call only.
            unsafe { GetProcAddress(self.0.as_ptr(), name.as_ptr()) }
        }
    }

    /// Windows has no set-uid programs.
    pub fn is_privileged() -> bool {
        false
    }
}
