//! The driver's symbols as `extern "C"` functions, and the table that finds them by name.

use std::ffi::{CStr, c_void};
use std::sync::LazyLock;

use crate::nccl;

/// Defines driver functions. Each is exported under its name and listed in `ENTRIES`; it counts its calls,
/// and may meet a fault before its body runs. An argument has its type from `cuda_sys`'s declaration.
macro_rules! entries {
    ($($name:ident($($arg:ident),* $(,)?) |$call:pat_param| $body:block)*) => {
        $(entry! { $name() ($($arg)*) $crate::entry::signature::$name, |$call| $body })*

        pub(in crate::entry) const ENTRIES: &[(&str, $crate::entry::Address)] = &[
            $((
                stringify!($name),
                // The first cast checks the number of arguments against the declaration.
                || $name as $crate::entry::signature::$name as *const std::ffi::c_void,
            ),)*
        ];
    };
}

/// Defines one function. Each step gives one argument its type, the first that `$left` takes, and continues
/// with a type that takes the others.
macro_rules! entry {
    (
        $name:ident($($arg:ident: $ty:ty,)*) ($next:ident $($later:ident)*) $left:ty,
        |$call:pat_param| $body:block
    ) => {
        entry! {
            $name($($arg: $ty,)* $next: <$left as $crate::entry::Takes>::First,) ($($later)*)
            <$left as $crate::entry::Takes>::Rest, |$call| $body
        }
    };
    ($name:ident($($arg:ident: $ty:ty,)*) () $left:ty, |$call:pat_param| $body:block) => {
        #[doc = concat!("`", stringify!($name), "` of the simulated driver.")]
        ///
        /// # Safety
        /// As in the CUDA driver API reference for this symbol.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> cuda_sys::CUresult {
            $crate::call::run(stringify!($name), |$call: &mut $crate::call::Call| $body)
        }
    };
}

/// The type of a function that takes arguments.
pub(in crate::entry) trait Takes {
    /// The type of the first argument.
    type First;
    /// The type of a function that takes the others.
    type Rest;
}

macro_rules! takes {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<$first, $($rest),*> Takes
            for unsafe extern "C" fn($first, $($rest),*) -> cuda_sys::CUresult
        {
            type First = $first;
            type Rest = unsafe extern "C" fn($($rest),*) -> cuda_sys::CUresult;
        }
        takes!($($rest)*);
    };
}

// `cuTensorMapEncodeTiled` takes the most arguments.
takes!(A B C D E F G H I J K L);

/// The type of each function.
#[allow(non_camel_case_types, reason = "the functions' own names")]
mod signature {
    pub(in crate::entry) use cuda_sys::signature::*;

    // `cuda.h` lacks what `cudaProfiler.h` declares.
    pub(in crate::entry) type cuProfilerStart = unsafe extern "C" fn() -> cuda_sys::CUresult;
    pub(in crate::entry) type cuProfilerStop = unsafe extern "C" fn() -> cuda_sys::CUresult;
}

mod array;
mod batch;
mod capture;
mod context;
mod copy;
mod copy_2d;
mod device;
mod driver;
mod error;
mod event;
mod external;
mod fill;
mod graph;
mod green;
mod host;
pub(crate) mod ipc;
pub(crate) mod jit;
mod launch;
mod library;
mod link;
mod managed;
mod memory;
mod module;
mod peer;
mod pointer;
mod pool;
mod primary;
mod semaphore;
mod stream;
mod tensor_map;
mod texture;
mod value;
mod virtual_memory;

/// Returns the address of a symbol; null if the simulated driver lacks it.
pub(crate) fn resolve(name: &CStr, missing: &[String]) -> *const c_void {
    let Ok(name) = name.to_str() else {
        return std::ptr::null();
    };
    if missing.iter().any(|symbol| symbol == name) {
        return std::ptr::null();
    }
    find(name).map_or(std::ptr::null(), |address| address())
}

/// Returns whether the simulated driver has this symbol.
pub(crate) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// A function that returns the address of a symbol.
pub(crate) type Address = fn() -> *const c_void;

const TABLES: &[&[(&str, Address)]] = &[
    array::ENTRIES,
    batch::ENTRIES,
    capture::ENTRIES,
    context::ENTRIES,
    copy::ENTRIES,
    copy_2d::ENTRIES,
    device::ENTRIES,
    driver::ENTRIES,
    error::ENTRIES,
    event::ENTRIES,
    external::ENTRIES,
    fill::ENTRIES,
    graph::build::ENTRIES,
    graph::copy::ENTRIES,
    graph::exec::ENTRIES,
    graph::memory::ENTRIES,
    graph::object::ENTRIES,
    graph::params::ENTRIES,
    graph::query::ENTRIES,
    graph::set::ENTRIES,
    graph::update::ENTRIES,
    green::ENTRIES,
    host::ENTRIES,
    ipc::ENTRIES,
    launch::ENTRIES,
    library::ENTRIES,
    link::ENTRIES,
    managed::ENTRIES,
    memory::ENTRIES,
    module::ENTRIES,
    peer::ENTRIES,
    pointer::ENTRIES,
    pool::ENTRIES,
    primary::ENTRIES,
    semaphore::ENTRIES,
    stream::ENTRIES,
    texture::ENTRIES,
    tensor_map::ENTRIES,
    value::ENTRIES,
    virtual_memory::ENTRIES,
];

fn find(name: &str) -> Option<Address> {
    // Not a hash map: callers look up hundreds of symbols at once, and Miri would interpret the hashing of
    // every letter.
    static BY_NAME: LazyLock<Vec<(&str, Address)>> = LazyLock::new(|| {
        let mut entries = [TABLES, &nccl::entry::TABLES].concat().concat();
        entries.sort_unstable_by_key(|&(name, _)| name);
        entries
    });
    let at = BY_NAME.binary_search_by_key(&name, |&(name, _)| name);
    at.ok().map(|at| BY_NAME[at].1)
}
