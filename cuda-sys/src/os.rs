//! The system's library loader.

pub use crate::once::LoadOnce;
#[cfg(cuda_sys_link)]
pub(crate) use system::linked;
pub use system::{Library, is_privileged};

/// `ncclUniqueId`. Functions of NCCL take it by value, and Miri requires caller and function to use the same
/// type: `cuda-core` and the simulated NCCL share this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct NcclUniqueId {
    /// Bytes that only NCCL interprets.
    pub internal: [u8; 128],
}

/// The driver's library; `libcuda.so` may be the toolkit's stub, which is only for linking.
#[cfg(not(windows))]
pub const DRIVER: &str = "libcuda.so.1";
/// The driver's library, in the system's directory.
#[cfg(windows)]
pub const DRIVER: &str = "nvcuda.dll";

/// Miri has no dynamic loader.
#[cfg(miri)]
mod system {
    use std::ffi::{CStr, OsStr, c_void};

    /// A loaded library; there are none under Miri.
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

        /// Returns the symbol with that name.
        pub fn symbol(&self, _: &CStr) -> *const c_void {
            match *self {}
        }
    }

    /// Returns a symbol of the linked driver; there is none under Miri.
    #[cfg(cuda_sys_link)]
    pub(crate) fn linked(_: &CStr) -> *const c_void {
        std::ptr::null()
    }

    /// Whether the process has more rights than the user who started it.
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

    // SAFETY: only dlsym takes the handle, and it may be called on any thread.
    unsafe impl Send for Library {}
    // SAFETY: as above.
    unsafe impl Sync for Library {}

    impl Library {
        /// Loads the library of that name or path.
        ///
        /// # Errors
        /// The loader's message.
        ///
        /// # Safety
        /// Loading runs the library's initialisers: they must be sound to run in this process, on this
        /// thread.
        pub unsafe fn open(name: &OsStr) -> Result<Self, String> {
            let name = CString::new(name.as_bytes())
                .map_err(|_| "the name holds a NUL byte".to_owned())?;
            // SAFETY: the name is NUL-terminated and read during the call only; the caller vouches
            // for the initialisers that run.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            NonNull::new(handle).map(Self).ok_or_else(error)
        }

        /// Returns the symbol with that name; null if there is none.
        pub fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: by the invariant a handle of dlopen; the name is NUL-terminated and read
            // during the call only.
            unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }.cast_const()
        }
    }

    /// Returns the symbol with that name from the libraries that this program was linked with; null if there
    /// is none.
    #[cfg(cuda_sys_link)]
    pub(crate) fn linked(name: &CStr) -> *const c_void {
        // SAFETY: the name is NUL-terminated and read during the call only.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast_const()
    }

    /// Returns the loader's last error message on this thread.
    fn error() -> String {
        // SAFETY: no precondition.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the loader gave no reason".to_owned();
        }
        // SAFETY: not null, so a C string, valid until the thread's next call to the loader.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Whether the process has more rights than the user who started it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn is_privileged() -> bool {
        // SAFETY: no precondition.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }

    /// Whether the process has more rights than the user who started it.
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
    const LOAD_LIBRARY_SEARCH_DEFAULT_DIRS: u32 = 0x1000;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn LoadLibraryExW(name: *const u16, file: *mut c_void, flags: u32) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *const c_void;
    }

    /// A loaded library, which stays loaded.
    // INVARIANT: a handle of LoadLibraryExW, which is never freed.
    pub struct Library(NonNull<c_void>);

    // SAFETY: only GetProcAddress takes the handle, and it may be called on any thread.
    unsafe impl Send for Library {}
    // SAFETY: as above.
    unsafe impl Sync for Library {}

    impl Library {
        /// Loads the library with that path, or the one with that name in the directories of the program or
        /// the system. Does not search the current directory and those of `PATH`, since any user may have put
        /// a library there.
        ///
        /// # Errors
        /// The loader's message.
        ///
        /// # Safety
        /// Loading runs the library's initialisers: they must be sound to run in this process, on this
        /// thread.
        pub unsafe fn open(name: &OsStr) -> Result<Self, String> {
            let path = Path::new(name);
            let (path, flags) = if name == super::DRIVER {
                (path.to_owned(), LOAD_LIBRARY_SEARCH_SYSTEM32)
            } else if path.components().nth(1).is_some() {
                let path = std::path::absolute(path).map_err(|error| error.to_string())?;
                // The libraries that it depends on may be in the same directory.
                (path, LOAD_WITH_ALTERED_SEARCH_PATH)
            } else {
                (path.to_owned(), LOAD_LIBRARY_SEARCH_DEFAULT_DIRS)
            };
            let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
            // SAFETY: the name ends in a zero; the second argument is reserved and null; the caller
            // vouches for the initialisers that run.
            let module = unsafe { LoadLibraryExW(wide.as_ptr(), ptr::null_mut(), flags) };
            NonNull::new(module)
                .map(Self)
                .ok_or_else(|| std::io::Error::last_os_error().to_string())
        }

        /// Returns the symbol with that name; null if there is none.
        pub fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: by the invariant a loaded module; the name is NUL-terminated and read during
            // the call only.
            unsafe { GetProcAddress(self.0.as_ptr(), name.as_ptr()) }
        }
    }

    /// Returns the symbol with that name from the driver that this program was linked with; null if there is
    /// none.
    #[cfg(cuda_sys_link)]
    pub(crate) fn linked(name: &CStr) -> *const c_void {
        // SAFETY: the driver is loaded already, so no initialiser runs.
        let driver = unsafe { Library::open(super::DRIVER.as_ref()) };
        driver.map_or(ptr::null(), |driver| driver.symbol(name))
    }

    /// Windows has no set-uid programs.
    pub fn is_privileged() -> bool {
        false
    }
}
