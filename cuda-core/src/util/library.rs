//! Libraries that are searched for and loaded when first used.

use std::ffi::{CStr, OsString, c_void};
use std::fmt::Write;
use std::mem;
use std::path::{Path, PathBuf};

use cuda_sys::os::{self, Library};

/// Defines a table of a library's functions, each with the types of its arguments and, unless it is an `int`,
/// of its result. Functions after `optional` are [`None`] if the library lacks them.
macro_rules! functions {
    (@type ($($argument:ty),*)) => { unsafe extern "C" fn($($argument),*) -> std::ffi::c_int };
    (@type ($($argument:ty),*) $result:ty) => { unsafe extern "C" fn($($argument),*) -> $result };
    (
        $(#[$about:meta])*
        $name:ident { $($field:ident = $symbol:literal $arguments:tt $(-> $result:ty)?;)* }
        $(optional { $($newer:ident = $newer_symbol:literal $newer_arguments:tt;)* })?
    ) => {
        $(#[$about])*
        // INVARIANT: functions with these signatures; the library is never unloaded.
        pub(super) struct $name {
            $(pub(super) $field: $crate::util::library::functions!(@type $arguments $($result)?),)*
            $($(pub(super) $newer: Option<$crate::util::library::functions!(@type $newer_arguments)>,)*)?
        }

        impl $name {
            /// # Safety
            /// Each address that is not null is a function with the signature of that symbol in the
            /// library's header, for the life of the process.
            unsafe fn resolve(
                symbol: &mut dyn FnMut(&std::ffi::CStr) -> *const std::ffi::c_void,
            ) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the caller promises that an address which is not null is a
                        // function of the field's signature.
                        let found = unsafe { $crate::util::library::function(symbol($symbol)) };
                        let Some(found) = found else {
                            return Err($crate::util::library::lacks($symbol));
                        };
                        found
                    },)*
                    $($($newer: {
                        // SAFETY: as above.
                        unsafe { $crate::util::library::function(symbol($newer_symbol)) }
                    },)*)?
                })
            }
        }
    };
}

pub(crate) use functions;

/// Explains why a library without that function is not accepted.
#[cold]
pub(crate) fn lacks(symbol: &CStr) -> String {
    format!("it lacks {}", symbol.to_string_lossy())
}

/// Returns the function at this address; [`None`] for null.
///
/// # Safety
/// `F` is a type of function pointers, and an address that is not null is a function of that type.
pub(crate) unsafe fn function<F: Copy>(address: *const c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: not null, and so a function of that type, by the caller's promise; the sizes are equal.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}

/// Returns what `load` makes of the first library that it accepts; otherwise a list of what was tried, with
/// the loader's answers.
///
/// The environment variable `variable` names a library to use instead of those called `names`, to which
/// `more` may add others. Both `variable` and `more` are ignored if the process has more rights than the user
/// who started it: that user must not choose the code that it runs.
pub(crate) fn find<T>(
    variable: &str,
    names: &[&str],
    more: impl FnOnce(Vec<PathBuf>) -> Vec<PathBuf>,
    load: impl Fn(Library) -> Result<T, String>,
) -> Result<T, String> {
    let by_name: Vec<_> = names.iter().map(PathBuf::from).collect();
    let candidates = match set(variable) {
        _ if os::is_privileged() => by_name,
        Some(library) => vec![library.into()],
        None => more(by_name),
    };
    let mut tried = String::new();
    for library in candidates {
        match open(&library).and_then(&load) {
            Ok(loaded) => return Ok(loaded),
            Err(answer) => {
                // Writing to a string cannot fail.
                let _ = write!(tried, " {} ({answer});", library.display());
            }
        }
    }
    if tried.ends_with(';') {
        tried.pop();
    }
    Err(tried)
}

/// The list of what was tried, if a thread of the parent process was loading the library at the fork.
pub(crate) const FORKED_MEANWHILE: &str =
    " nothing (this process was forked while a thread of its parent did)";

/// Returns the value of an environment variable, unless it is empty.
pub(crate) fn set(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

fn open(library: &Path) -> Result<Library, String> {
    // SAFETY: the initialisers are those of the library that this crate looks for, found by its own
    // name, or of the library that the user who started the program chose.
    unsafe { Library::open(library.as_os_str()) }
}
