//! Finds the driver's library and fills the table, once a process.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::OnceLock;

use crate::DriverApi;

// INVARIANT: each pointer of the table is a function with the signature of its symbol, for the life
// of the process: the library behind it is never unloaded.
/// Filled once and never emptied.
static TABLE: OnceLock<Loaded> = OnceLock::new();

struct Loaded {
    api: DriverApi,
    error: Option<LoadError>,
}

/// Why no driver was loaded: what was tried, and what the loader answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    attempts: Vec<Attempt>,
}

/// A library that could not be loaded as the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The library's name or path.
    pub library: String,
    /// What the system's loader said of it.
    pub answer: String,
}

impl LoadError {
    /// Each library that was tried, in order.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no CUDA driver could be loaded")?;
        for (i, Attempt { library, answer }) in self.attempts.iter().enumerate() {
            let separator = if i == 0 { ':' } else { ';' };
            write!(f, "{separator} {library} ({answer})")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// Why [`install`] did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// The table was filled before: by an earlier `install`, by [`load`], or by the first call of
    /// a driver function.
    AlreadyFilled,
    /// The driver's library was linked at build time (`CUDA_SYS_LINK=1`); there is no table.
    Linked,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstallError::AlreadyFilled => "the table of driver functions was filled before",
            InstallError::Linked => "the driver's library was linked at build time",
        })
    }
}

impl std::error::Error for InstallError {}

/// The table that every free function of this crate goes through.
#[cfg(not(cuda_sys_link))]
#[inline]
pub(crate) fn table() -> &'static DriverApi {
    &TABLE.get_or_init(open).api
}

/// Loads the driver at the first call and returns its table.
///
/// Calling it is never necessary: every function of this crate loads the driver at first use. It
/// is how to learn *why* there is none.
///
/// # Errors
/// What was tried and what the loader answered, the same at every call: the outcome of the first
/// attempt stands for the life of the process.
pub fn load() -> Result<&'static DriverApi, LoadError> {
    let loaded = TABLE.get_or_init(open);
    match &loaded.error {
        None => Ok(&loaded.api),
        Some(error) => Err(error.clone()),
    }
}

/// Fills the table from `resolve` instead of a library. A symbol for which it returns null counts
/// as missing from the driver.
///
/// # Errors
/// [`InstallError::AlreadyFilled`] unless this is the first use of the table.
///
/// # Safety
/// Each address that is not null is a function with the signature of that symbol, and stays so for
/// the life of the process.
pub unsafe fn install(resolve: impl FnMut(&CStr) -> *const c_void) -> Result<(), InstallError> {
    // SAFETY: the caller's own promise.
    unsafe { fill(resolve) }
}

#[cfg(cuda_sys_link)]
unsafe fn fill(_: impl FnMut(&CStr) -> *const c_void) -> Result<(), InstallError> {
    Err(InstallError::Linked)
}

#[cfg(not(cuda_sys_link))]
unsafe fn fill(mut resolve: impl FnMut(&CStr) -> *const c_void) -> Result<(), InstallError> {
    if TABLE.get().is_some() {
        return Err(InstallError::AlreadyFilled);
    }
    // Built before it is stored: a resolver that calls a driver function must not find itself
    // waiting for its own end.
    // SAFETY: the caller of `install` vouches for the addresses.
    let api = unsafe { DriverApi::from_resolver(&mut resolve) };
    TABLE
        .set(Loaded { api, error: None })
        .map_err(|_| InstallError::AlreadyFilled)
}

/// The linked library's functions.
#[cfg(cuda_sys_link)]
fn open() -> Loaded {
    Loaded {
        api: DriverApi::linked(),
        error: None,
    }
}

/// Miri has no dynamic loader: there, `install` is the only source.
#[cfg(all(miri, not(cuda_sys_link)))]
fn open() -> Loaded {
    Loaded::absent(os::LIBRARY, "not available under Miri")
}

#[cfg(all(not(miri), not(cuda_sys_link)))]
fn open() -> Loaded {
    let library = match std::env::var_os("CUDA_SYS_LIBRARY").filter(|value| !value.is_empty()) {
        // Whoever starts a privileged program must not choose the code that it runs.
        Some(library) if !os::is_privileged() => library,
        _ => os::LIBRARY.into(),
    };
    let name = library.to_string_lossy();
    let handle = match os::Library::open(&library) {
        Ok(handle) => handle,
        Err(answer) => return Loaded::absent(&name, &answer),
    };
    if handle.symbol(c"cuInit").is_null() {
        return Loaded::absent(&name, "not a CUDA driver: it lacks cuInit");
    }
    // SAFETY: the library has cuInit, so it is NVIDIA's driver, or what the user put in its place;
    // a driver's symbols have the signatures of NVIDIA's header, which never change under a name.
    // It is never unloaded.
    let api = unsafe { DriverApi::from_resolver(&mut |name| handle.symbol(name)) };
    Loaded { api, error: None }
}

#[cfg(not(cuda_sys_link))]
impl Loaded {
    /// The state of a process without a driver.
    fn absent(library: &str, answer: &str) -> Self {
        let attempt = Attempt {
            library: library.to_owned(),
            answer: answer.to_owned(),
        };
        Self {
            api: DriverApi::absent(),
            error: Some(LoadError {
                attempts: vec![attempt],
            }),
        }
    }
}
#[cfg(all(unix, not(cuda_sys_link)))]
#[cfg_attr(miri, allow(dead_code, reason = "Miri has no dynamic loader"))]
mod os {
    use std::ffi::{CStr, CString, OsStr, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::ptr::NonNull;

    /// The driver itself; `libcuda.so` may be the toolkit's stub, which only links.
    pub(super) const LIBRARY: &str = "libcuda.so.1";

    pub(super) struct Library(NonNull<c_void>);

    impl Library {
        pub(super) fn open(name: &OsStr) -> Result<Self, String> {
            let name = CString::new(name.as_bytes())
                .map_err(|_| "the name holds a NUL byte".to_owned())?;
            // SAFETY: the name is a C string. The library's initialisers run; they are the
            // driver's, or those of a library that the user named.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            NonNull::new(handle).map(Self).ok_or_else(error)
        }

        pub(super) fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: the handle came from dlopen and is never closed; the name is a C string.
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
    pub(super) fn is_privileged() -> bool {
        // SAFETY: no precondition.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }

    /// Whether the process runs with more rights than whoever started it.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn is_privileged() -> bool {
        // SAFETY: no precondition.
        let (user, effective) = (unsafe { libc::getuid() }, unsafe { libc::geteuid() });
        // SAFETY: no precondition.
        let (group, effective_group) = (unsafe { libc::getgid() }, unsafe { libc::getegid() });
        user != effective || group != effective_group
    }
}

#[cfg(all(windows, not(cuda_sys_link)))]
#[cfg_attr(miri, allow(dead_code, reason = "Miri has no dynamic loader"))]
mod os {
    use std::ffi::{CStr, OsStr, c_char, c_void};
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::{self, NonNull};

    /// The driver; it lies in the system's directory.
    pub(super) const LIBRARY: &str = "nvcuda.dll";

    const LOAD_WITH_ALTERED_SEARCH_PATH: u32 = 0x8;
    const LOAD_LIBRARY_SEARCH_SYSTEM32: u32 = 0x800;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn LoadLibraryExW(name: *const u16, file: *mut c_void, flags: u32) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *const c_void;
    }

    pub(super) struct Library(NonNull<c_void>);

    impl Library {
        pub(super) fn open(name: &OsStr) -> Result<Self, String> {
            let flags = if name == LIBRARY {
                // Not from the current directory, where anybody may have put one.
                LOAD_LIBRARY_SEARCH_SYSTEM32
            } else if Path::new(name).is_absolute() {
                // What the library itself needs may lie beside it.
                LOAD_WITH_ALTERED_SEARCH_PATH
            } else {
                0
            };
            let wide: Vec<u16> = name.encode_wide().chain([0]).collect();
            // SAFETY: the name ends in a zero; the second argument is reserved and null. The
            // library's initialisers run; they are the driver's, or those of a library that the
            // user named.
            let module = unsafe { LoadLibraryExW(wide.as_ptr(), ptr::null_mut(), flags) };
            NonNull::new(module)
                .map(Self)
                .ok_or_else(|| std::io::Error::last_os_error().to_string())
        }

        pub(super) fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: the module was loaded and is never freed; the name is a C string.
            unsafe { GetProcAddress(self.0.as_ptr(), name.as_ptr()) }
        }
    }

    /// Windows has no set-uid programs.
    pub(super) fn is_privileged() -> bool {
        false
    }
}
