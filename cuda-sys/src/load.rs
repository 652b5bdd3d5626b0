//! Finds the driver's library and fills the table, once per process.

use std::ffi::{CStr, c_void};
use std::fmt;

use crate::DriverApi;
use crate::once::LoadOnce;
use crate::os;

// INVARIANT: each pointer of the table is a function with the signature of its symbol, for the life
// of the process: the library that they come from is never unloaded.
/// The table of driver functions; filled once and never emptied.
static TABLE: LoadOnce<Loaded> = LoadOnce::new();

struct Loaded {
    api: DriverApi,
    error: Option<LoadError>,
}

/// The error if no driver could be loaded: the library that was tried, and the loader's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    library: String,
    answer: String,
}

impl LoadError {
    fn new(library: &str, answer: &str) -> Self {
        // Most loaders' messages begin with the name.
        let answer =
            answer.strip_prefix(library).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(answer);
        Self { library: library.to_owned(), answer: answer.to_owned() }
    }

    /// The name or the path of the library that was tried.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The system loader's message.
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// The error in a forked child.
    fn forked() -> Self {
        Self::new(os::DRIVER, FORKED)
    }
}

const FORKED: &str = "this process was forked while a thread of its parent loaded the driver";

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, answer } = self;
        if answer == FORKED {
            return write!(f, "the CUDA driver cannot be loaded: {answer}");
        }
        if library != os::DRIVER {
            let names = "CUDA_SYS_LIBRARY names";
            return write!(f, "{names} {library}, which cannot be loaded: {answer}");
        }
        write!(
            f,
            "no CUDA driver could be loaded: {library} ({answer}). Install NVIDIA's driver; in a \
             container, start it with `docker run --gpus all`. CUDA_SYS_LIBRARY names another \
             library to load"
        )
    }
}

impl std::error::Error for LoadError {}

/// The reason why [`install`] had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// The table was already filled: by an earlier `install`, by [`load`], or by the first call of a driver
    /// function.
    AlreadyFilled,
    /// The driver's library was linked at build time (`CUDA_SYS_LINK=1`): the table belongs to that library.
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

/// The table through which the free functions of this crate call.
#[inline]
pub(crate) fn table() -> &'static DriverApi {
    /// The table of a forked child if a thread of its parent was loading the driver at the fork.
    static FORKED: DriverApi = DriverApi::NO_DRIVER;
    TABLE.get_or_init(open).map_or(&FORKED, |loaded| &loaded.api)
}

/// Loads the driver on the first call, and returns its table.
///
/// Calling this function is never necessary: every function of this crate loads the driver at first use. It
/// returns *why* there is no driver.
///
/// # Errors
/// The library that was tried and the loader's message. The result is the same for every call: the outcome of
/// the first attempt holds for the life of the process. In a forked child there is no driver if a thread of
/// its parent was loading the driver at the fork, since no thread of the child can complete the load.
pub fn load() -> Result<&'static DriverApi, LoadError> {
    let Some(loaded) = TABLE.get_or_init(open) else {
        return Err(LoadError::forked());
    };
    match &loaded.error {
        None => Ok(&loaded.api),
        Some(error) => Err(error.clone()),
    }
}

/// Fills the table from `resolve` instead of a library. A symbol counts as missing from the driver if
/// `resolve` returns null for it.
///
/// # Errors
/// [`InstallError::AlreadyFilled`] unless this is the first use of the table.
///
/// # Safety
/// Each address that is not null is a function with the signature of that symbol, and stays so for
/// the life of the process.
pub unsafe fn install(resolve: impl FnMut(&CStr) -> *const c_void) -> Result<(), InstallError> {
    // SAFETY: the caller makes the same promise.
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
    // Built before it is stored, so that a resolver that calls a driver function does not wait for itself.
    // SAFETY: the caller of `install` vouches for the addresses.
    let api = unsafe { DriverApi::from_resolver(&mut resolve) };
    TABLE.set(Loaded { api, error: None }).map_err(|_| InstallError::AlreadyFilled)
}

/// Looks up the linked library's symbols. A table with the address of each function would make the linker
/// require all of them, and the system's loader refuse a driver that lacks one.
#[cfg(cuda_sys_link)]
fn open() -> Loaded {
    // Refers to the library: linkers leave out one that a program has no other reference to (`--as-needed`).
    std::hint::black_box(crate::symbol::cuInit as *const c_void);
    // SAFETY: symbols of the driver, which was linked, have the signatures of NVIDIA's header, which
    // never change under a name. It is not unloaded while this program is loaded.
    let api = unsafe { DriverApi::from_resolver(&mut os::linked) };
    Loaded { api, error: None }
}

#[cfg(not(cuda_sys_link))]
fn open() -> Loaded {
    let library = match std::env::var_os("CUDA_SYS_LIBRARY").filter(|value| !value.is_empty()) {
        // The user who starts a privileged program must not choose the code that it runs.
        Some(library) if !os::is_privileged() => library,
        _ => os::DRIVER.into(),
    };
    let name = library.to_string_lossy();
    // SAFETY: the initialisers belong to the driver, found by its own name, or to the library that was chosen
    // by the user who started the program.
    let handle = match unsafe { os::Library::open(&library) } {
        Ok(handle) => handle,
        Err(answer) => return Loaded::absent(&name, &answer),
    };
    if handle.symbol(c"cuInit").is_null() {
        return Loaded::absent(&name, "not a CUDA driver: it lacks cuInit");
    }
    // SAFETY: the library has cuInit, so it is NVIDIA's driver, or a library that the user put in its place;
    // a driver's symbols have the signatures of NVIDIA's header, which never change under a name. It is never
    // unloaded.
    let api = unsafe { DriverApi::from_resolver(&mut |name| handle.symbol(name)) };
    Loaded { api, error: None }
}

#[cfg(not(cuda_sys_link))]
impl Loaded {
    /// The state of a process without a driver.
    fn absent(library: &str, answer: &str) -> Self {
        Self { api: DriverApi::absent(), error: Some(LoadError::new(library, answer)) }
    }
}

#[cfg(test)]
mod tests {
    use super::{LoadError, os};

    /// `tests/absent.rs` tests the text for a library of the user's choice.
    #[test]
    fn a_driver_that_is_absent_is_to_be_installed() {
        let text = LoadError::new(os::DRIVER, "No such file").to_string();
        let begins =
            format!("no CUDA driver could be loaded: {} (No such file). Install", os::DRIVER);
        assert!(text.starts_with(&begins) && text.contains("--gpus all"), "{text}");
    }
}
