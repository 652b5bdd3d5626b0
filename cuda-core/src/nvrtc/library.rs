//! Finds NVRTC's library and its functions, once a process.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// `nvrtcProgram`.
pub(super) type RawProgram = *mut c_void;

macro_rules! api {
    ($($field:ident = $symbol:literal: $ty:ty,)*) => {
        /// Functions of NVRTC, all of them in version 11.2, which answer with an `nvrtcResult`.
        // INVARIANT: functions with these signatures; the library is never unloaded.
        pub(super) struct Api {
            $(pub(super) $field: $ty,)*
        }

        impl Api {
            /// # Safety
            /// Each address that is not null is a function with the signature of that symbol in
            /// `nvrtc.h`, for the life of the process.
            unsafe fn resolve(
                mut symbol: impl FnMut(&CStr) -> *const c_void,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let address = symbol($symbol);
                        if address.is_null() {
                            return Err(concat!("it lacks ", stringify!($field)));
                        }
                        // SAFETY: the caller vouches that an address which is not null is a
                        // function of this signature; function pointers and data pointers have one
                        // size on every platform that CUDA supports.
                        unsafe { std::mem::transmute::<*const c_void, $ty>(address) }
                    },)*
                })
            }
        }
    };
}

api! {
    version = c"nvrtcVersion": unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string = c"nvrtcGetErrorString": unsafe extern "C" fn(c_int) -> *const c_char,
    num_supported_archs = c"nvrtcGetNumSupportedArchs": unsafe extern "C" fn(*mut c_int) -> c_int,
    supported_archs = c"nvrtcGetSupportedArchs": unsafe extern "C" fn(*mut c_int) -> c_int,
    create_program = c"nvrtcCreateProgram": unsafe extern "C" fn(
        *mut RawProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy_program = c"nvrtcDestroyProgram": unsafe extern "C" fn(*mut RawProgram) -> c_int,
    add_name_expression = c"nvrtcAddNameExpression":
        unsafe extern "C" fn(RawProgram, *const c_char) -> c_int,
    compile_program = c"nvrtcCompileProgram":
        unsafe extern "C" fn(RawProgram, c_int, *const *const c_char) -> c_int,
    lowered_name = c"nvrtcGetLoweredName":
        unsafe extern "C" fn(RawProgram, *const c_char, *mut *const c_char) -> c_int,
    ptx_size = c"nvrtcGetPTXSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    ptx = c"nvrtcGetPTX": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    cubin_size = c"nvrtcGetCUBINSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    cubin = c"nvrtcGetCUBIN": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    log_size = c"nvrtcGetProgramLogSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    log = c"nvrtcGetProgramLog": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
}

/// NVRTC, loaded at the first call; the outcome stands for the life of the process.
pub(super) fn api() -> Result<&'static Api> {
    static LOADED: OnceLock<Result<Api>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// The environment variable that names a library to take.
const OVERRIDE: &str = "CUDA_CORE_NVRTC";

fn open() -> Result<Api> {
    let mut tried = String::new();
    for library in candidates() {
        match load(&library) {
            Ok(api) => return Ok(api),
            Err(answer) => {
                // Writing to a string cannot fail.
                let _ = write!(tried, " {} ({answer});", library.display());
            }
        }
    }
    if tried.ends_with(';') {
        tried.pop();
    }
    Err(Error::NoNvrtc { tried })
}

/// Libraries to try, in order.
fn candidates() -> Vec<PathBuf> {
    let by_name = || os::NAMES.iter().map(PathBuf::from);
    // Whoever starts a privileged program must not choose the code that it runs.
    if os::is_privileged() {
        return by_name().collect();
    }
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(library) = set(OVERRIDE) {
        return vec![library.into()];
    }
    let roots = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set);
    let roots = roots.chain(os::ROOT.map(OsString::from));
    let folders: Vec<PathBuf> = roots
        .map(|root| Path::new(&root).join(os::FOLDER))
        .collect();
    let in_folders = folders
        .iter()
        .flat_map(|folder| os::NAMES.iter().map(move |name| folder.join(name)))
        .filter(|library| library.exists());
    by_name().chain(in_folders).collect()
}

fn load(library: &Path) -> Result<Api, String> {
    let library = os::Library::open(library.as_os_str())?;
    // SAFETY: the library is NVRTC by its name, or what the user put in its place; the signatures
    // of NVRTC's functions have never changed. It is never unloaded.
    unsafe { Api::resolve(|name| library.symbol(name)) }.map_err(str::to_owned)
}

#[cfg(miri)]
mod os {
    use std::ffi::{CStr, OsStr, c_void};

    pub(super) const NAMES: [&str; 1] = ["libnvrtc.so"];
    pub(super) const FOLDER: &str = "lib64";
    pub(super) const ROOT: Option<&str> = None;

    pub(super) enum Library {}

    impl Library {
        pub(super) fn open(_: &OsStr) -> Result<Self, String> {
            Err("not available under Miri".to_owned())
        }

        pub(super) fn symbol(&self, _: &CStr) -> *const c_void {
            match *self {}
        }
    }

    pub(super) fn is_privileged() -> bool {
        false
    }
}

#[cfg(all(unix, not(miri)))]
mod os {
    use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::ptr::NonNull;

    pub(super) const NAMES: [&str; 4] = [
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "libnvrtc.so.11.2",
        "libnvrtc.so",
    ];
    pub(super) const FOLDER: &str = "lib64";
    pub(super) const ROOT: Option<&str> = Some("/usr/local/cuda");

    const RTLD_NOW: c_int = 2;

    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *mut c_char;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        fn getauxval(kind: std::ffi::c_ulong) -> std::ffi::c_ulong;
    }

    pub(super) struct Library(NonNull<c_void>);

    impl Library {
        pub(super) fn open(name: &OsStr) -> Result<Self, String> {
            let name = CString::new(name.as_bytes())
                .map_err(|_| "the name holds a NUL byte".to_owned())?;
            // SAFETY: the name is a C string. The library's initialisers run; they are NVRTC's, or
            // those of a library that the user named.
            let handle = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
            NonNull::new(handle).map(Self).ok_or_else(error)
        }

        pub(super) fn symbol(&self, name: &CStr) -> *const c_void {
            // SAFETY: the handle came from dlopen and is never closed; the name is a C string.
            unsafe { dlsym(self.0.as_ptr(), name.as_ptr()) }.cast_const()
        }
    }

    /// The loader's last complaint on this thread.
    fn error() -> String {
        // SAFETY: no precondition.
        let text = unsafe { dlerror() };
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
        const AT_SECURE: std::ffi::c_ulong = 23;
        // SAFETY: no precondition.
        unsafe { getauxval(AT_SECURE) != 0 }
    }

    /// CUDA runs on no other system of this family that has set-uid programs.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn is_privileged() -> bool {
        false
    }
}

#[cfg(all(windows, not(miri)))]
mod os {
    use std::ffi::{CStr, OsStr, c_char, c_void};
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::{self, NonNull};

    pub(super) const NAMES: [&str; 3] = [
        "nvrtc64_130_0.dll",
        "nvrtc64_120_0.dll",
        "nvrtc64_112_0.dll",
    ];
    pub(super) const FOLDER: &str = "bin";
    pub(super) const ROOT: Option<&str> = None;

    const LOAD_WITH_ALTERED_SEARCH_PATH: u32 = 0x8;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn LoadLibraryExW(name: *const u16, file: *mut c_void, flags: u32) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *const c_void;
    }

    pub(super) struct Library(NonNull<c_void>);

    impl Library {
        pub(super) fn open(name: &OsStr) -> Result<Self, String> {
            let flags = if Path::new(name).is_absolute() {
                // What the library itself needs lies beside it.
                LOAD_WITH_ALTERED_SEARCH_PATH
            } else {
                0
            };
            let wide: Vec<u16> = name.encode_wide().chain([0]).collect();
            // SAFETY: the name ends in a zero; the second argument is reserved and null. The
            // library's initialisers run; they are NVRTC's, or those of a library that the user
            // named.
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
