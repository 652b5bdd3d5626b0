//! The macro that expands all generated function declarations, and the function table.

use core::ffi::{CStr, c_void};
use core::fmt;
use std::ffi::CString;
use std::ptr;

use crate::DriverApi;

/// Implements `Debug` of an enum: shows the name of the value, or its number if the header does not name it.
macro_rules! by_name {
    ($enum:ident { $($value:ident,)* }) => {
        impl ::core::fmt::Debug for $enum {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let names = &[$(($value.0 as i64, stringify!($value)),)*];
                crate::api::show(stringify!($enum), self.0 as i64, names, f)
            }
        }
    };
}

pub(crate) fn show(
    name: &str,
    value: i64,
    names: &[(i64, &str)],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match names.iter().find(|(known, _)| *known == value) {
        Some((_, known)) => f.write_str(known),
        None => write!(f, "{name}({value})"),
    }
}

/// Expands the declarations to the function table [`DriverApi`] and to one free function per symbol, with C's
/// name and signature.
///
/// The free functions call through the table. Under `cfg(cuda_sys_link)` those of the floor, CUDA 11.8, are
/// the linked library's own functions; the linker needs only those that the program calls. The functions
/// marked `#[newer]`, which a driver may lack, still call through the table.
macro_rules! driver_api {
    ($(
        #[page = $page:literal]
        $(#[$newer:ident])?
        pub fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> CUresult;
    )*) => {
        /// One function pointer per symbol, under the symbol's name. The pointers of symbols that the driver
        /// lacks point to a stub.
        ///
        /// The contract of a field is that of the function with the same name in [`symbol`](crate::symbol).
        // INVARIANT: repr(C), with the entries first: the pointer at index i belongs to `SYMBOLS[i]`.
        #[derive(Debug)]
        #[repr(C)]
        pub struct DriverApi {
            $(
                #[doc = concat!(
                    "[`", stringify!($name), "`]",
                    "(https://docs.nvidia.com/cuda/cuda-driver-api/", $page, ")"
                )]
                pub $name: unsafe extern "C" fn($($ty),*) -> CUresult,
            )*
            pub(crate) missing: Vec<&'static str>,
        }

        impl DriverApi {
            /// Names of all symbols of the table.
            pub const SYMBOLS: &'static [&'static str] = &[$(stringify!($name),)*];

            /// A table whose every entry is a stub, as for a driver that lacks every symbol.
            pub(crate) const NEWER_DRIVER: Self = Self {
                $($name: stub::$name::<{ crate::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER.0 }>,)*
                missing: Vec::new(),
            };

            /// A table whose every entry is a stub, as for a machine without a driver.
            pub(crate) const NO_DRIVER: Self = Self {
                $($name: stub::$name::<{ CUDA_ERROR_SHARED_OBJECT_INIT_FAILED.0 }>,)*
                missing: Vec::new(),
            };

            /// Calls each entry with zeros as arguments, which only stubs accept.
            #[cfg(all(test, not(cuda_sys_link)))]
            pub(crate) fn call_each(&self, mut see: impl FnMut(&'static str, CUresult)) {
                $({
                    // SAFETY: a stub, which reads no argument.
                    let result = unsafe { (self.$name)($(crate::api::tests::zero::<$ty>()),*) };
                    see(stringify!($name), result);
                })*
            }

            /// Returns the stub for a symbol, with the symbol's signature.
            #[cfg(all(test, not(cuda_sys_link)))]
            pub(crate) fn stub(name: &str) -> *const core::ffi::c_void {
                match name {
                    $(stringify!($name) => stub::$name::<{ CUDA_ERROR_SHARED_OBJECT_INIT_FAILED.0 }>
                        as *const core::ffi::c_void,)*
                    _ => core::ptr::null(),
                }
            }
        }

        /// One stub per symbol; returns `CODE`.
        mod stub {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $name<const CODE: core::ffi::c_uint>(
                    $(_: $ty),*
                ) -> CUresult {
                    cudaError_enum(CODE)
                }
            )*
        }

        /// One function per symbol of the driver, under the symbol's own name.
        ///
        /// A name here means the same function with every header; see [Names](crate#names).
        pub mod symbol {
            use super::*;
            $(
                symbol! {
                    [$($newer)?]
                    #[doc = concat!(
                        "Calls the driver's `", stringify!($name), "`: see [NVIDIA's reference]",
                        "(https://docs.nvidia.com/cuda/cuda-driver-api/", $page, ")."
                    )]
                    ///
                    /// # Safety
                    /// See NVIDIA's reference for the requirements on the arguments.
                    $name($($arg: $ty),*)
                }
            )*
        }

        /// The type of each function of [`mod@symbol`], for the simulated driver; not part of the interface.
        #[doc(hidden)]
        pub mod signature {
            use super::*;
            $(pub type $name = unsafe extern "C" fn($($ty),*) -> CUresult;)*
        }
    };
}

/// Declares one free function.
macro_rules! symbol {
    ([newer] $(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*)) => {
        symbol! { @loaded $(#[$doc])* $name($($arg: $ty),*) }
    };
    ([] $(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*)) => {
        #[cfg(not(cuda_sys_link))]
        symbol! { @loaded $(#[$doc])* $name($($arg: $ty),*) }
        #[cfg(cuda_sys_link)]
        #[link(name = "cuda")]
        unsafe extern "C" {
            $(#[$doc])*
            pub fn $name($($arg: $ty),*) -> CUresult;
        }
    };
    (@loaded $(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*)) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            let function = crate::load::table().$name;
            // SAFETY: the caller fulfils the contract of the symbol that the table's entry points
            // to.
            unsafe { function($($arg),*) }
        }
    };
}

impl DriverApi {
    /// Names of the symbols that the driver lacks; their stubs return
    /// [`CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`](crate::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER).
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Fills the table from `resolve`, which maps a symbol's name to its address.
    ///
    /// # Safety
    /// Each address that is not null is a function with the signature of that symbol, and stays so
    /// for the life of the process.
    pub(crate) unsafe fn from_resolver(resolve: &mut dyn FnMut(&CStr) -> *const c_void) -> Self {
        let mut api = Self::NEWER_DRIVER;
        // A loop instead of one expression per symbol: five hundred of those would take the compiler a
        // second.
        for (place, symbol) in Self::SYMBOLS.iter().enumerate() {
            // An identifier contains no NUL.
            let address = CString::new(*symbol).map_or(ptr::null(), |name| resolve(&name));
            if address.is_null() {
                api.missing.push(symbol);
                continue;
            }
            let entries = (&raw mut api).cast::<*const c_void>();
            // SAFETY: by the invariant of the struct the entry is within it; function pointers and
            // data pointers have one size on every platform that CUDA supports.
            let entry = unsafe { entries.add(place) };
            // SAFETY: the table is this function's own; the caller vouches that a non-null address
            // is a function of this entry's signature.
            unsafe { entry.write(address) };
        }
        api
    }

    /// Returns the table of a machine without a driver, where every symbol is missing.
    #[cfg(not(cuda_sys_link))]
    pub(crate) fn absent() -> Self {
        let mut api = Self::NO_DRIVER;
        api.missing = Self::SYMBOLS.to_vec();
        api
    }
}

#[cfg(all(test, not(cuda_sys_link)))]
pub(crate) mod tests {
    use std::ptr;

    use crate::*;

    /// Returns a zero of an argument's type.
    pub(crate) fn zero<T>() -> T {
        // SAFETY: C's argument types (integers, pointers, structs of both) may be all zeros, and only those
        // are used here.
        unsafe { std::mem::zeroed() }
    }

    fn answers(api: &DriverApi, expected: CUresult) {
        let mut seen = Vec::new();
        api.call_each(|name, result| {
            assert_eq!(result, expected, "{name}");
            seen.push(name);
        });
        assert_eq!(seen, DriverApi::SYMBOLS);
        assert_eq!(api.missing(), DriverApi::SYMBOLS);
    }

    #[test]
    fn without_a_driver_every_entry_says_so() {
        answers(&DriverApi::absent(), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
    }

    #[test]
    fn of_an_empty_driver_every_entry_asks_for_a_newer_one() {
        // SAFETY: no address but null.
        let api = unsafe { DriverApi::from_resolver(&mut |_| ptr::null()) };
        answers(&api, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    }

    #[test]
    fn a_driver_without_thirty_symbols_has_the_others() {
        // Every tenth symbol: a mix from all parts of any header.
        let lacking: Vec<_> = DriverApi::SYMBOLS.iter().copied().step_by(10).take(30).collect();
        let mut resolve = |name: &std::ffi::CStr| match name.to_str() {
            Ok(name) if !lacking.contains(&name) => DriverApi::stub(name),
            _ => ptr::null(),
        };
        // SAFETY: stubs have the signatures of their symbols.
        let api = unsafe { DriverApi::from_resolver(&mut resolve) };
        assert_eq!(api.missing().len(), 30);
        assert_eq!(api.missing(), lacking);
        api.call_each(|name, result| {
            let expected = if lacking.contains(&name) {
                CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
            } else {
                CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
            };
            assert_eq!(result, expected, "{name}");
        });
    }

    #[test]
    fn the_resolver_is_asked_for_each_symbol_once_by_its_name() {
        let mut asked = Vec::new();
        // SAFETY: no address but null.
        unsafe {
            DriverApi::from_resolver(&mut |name| {
                asked.push(name.to_string_lossy().into_owned());
                ptr::null()
            })
        };
        assert_eq!(asked, DriverApi::SYMBOLS);
    }
}
