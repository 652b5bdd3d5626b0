//! The macro that every generated function declaration goes through.

/// Expands the declarations to the function table [`DriverApi`](crate::DriverApi) and to one free
/// function a symbol, with C's name and signature.
macro_rules! driver_api {
    ($(pub fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> CUresult;)*) => {
        /// One pointer a symbol; those that the driver lacks point to a stub.
        #[derive(Debug)]
        pub struct DriverApi {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub $name: unsafe extern "C" fn($($ty),*) -> CUresult,
            )*
            missing: Vec<&'static str>,
        }

        impl DriverApi {
            /// Fills the table from `resolve`, which maps a symbol's name to its address.
            ///
            /// # Safety
            /// Each address that is not null is a function with the signature of that symbol, and
            /// stays so for the life of the process.
            pub(crate) unsafe fn from_resolver(
                resolve: &mut dyn FnMut(&core::ffi::CStr) -> *const core::ffi::c_void,
            ) -> Self {
                let mut missing = Vec::new();
                $(
                    let $name = {
                        const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("an identifier holds no NUL"),
                        };
                        let address = resolve(NAME);
                        if address.is_null() {
                            missing.push(stringify!($name));
                            stub::newer_driver::$name
                        } else {
                            // SAFETY: the caller vouches that a non-null address is a function of
                            // this signature; function pointers and data pointers have one size
                            // on every platform that CUDA supports.
                            unsafe {
                                core::mem::transmute::<
                                    *const core::ffi::c_void,
                                    unsafe extern "C" fn($($ty),*) -> CUresult,
                                >(address)
                            }
                        }
                    };
                )*
                Self { $($name,)* missing }
            }

            /// The table of a machine without a driver: every entry returns
            /// `CUDA_ERROR_SHARED_OBJECT_INIT_FAILED`.
            pub(crate) fn absent() -> Self {
                Self {
                    $($name: stub::no_driver::$name,)*
                    missing: vec![$(stringify!($name),)*],
                }
            }

            /// Names of the symbols that the driver lacks; their stubs return
            /// `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`.
            pub fn missing(&self) -> &[&'static str] {
                &self.missing
            }

            /// Names of all symbols of the table.
            pub const SYMBOLS: &'static [&'static str] = &[$(stringify!($name),)*];
        }

        mod stub {
            pub(super) mod newer_driver {
                #[allow(unused_imports)]
                use super::super::*;
                $(
                    pub(in super::super) unsafe extern "C" fn $name($(_: $ty),*) -> CUresult {
                        // Declared by hand: headers name it only from 13.0 on.
                        CUresult(36)
                    }
                )*
            }
            pub(super) mod no_driver {
                #[allow(unused_imports)]
                use super::super::*;
                $(
                    pub(in super::super) unsafe extern "C" fn $name($(_: $ty),*) -> CUresult {
                        CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
                    }
                )*
            }
        }

        /// One function a symbol of the driver, under the symbol's own name.
        pub mod symbol {
            use super::*;
            $(
                #[doc = concat!("Calls the driver's `", stringify!($name), "`.")]
                ///
                /// # Safety
                /// As the CUDA driver API reference says for this symbol.
                pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    let function = crate::load::table().$name;
                    // SAFETY: the caller keeps the contract of the symbol, to which the table's
                    // entry points.
                    unsafe { function($($arg),*) }
                }
            )*
        }
    };
}
