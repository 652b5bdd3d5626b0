//! NCCL's symbols, as `extern "C"` functions.

/// Defines functions of NCCL, as `entries!` defines those of the driver. `of comm` names the communicator
/// that no other thread may use during the call.
macro_rules! nccl_entries {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) $(of $comm:ident)? |$call:pat_param| $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the simulated NCCL.")]
            ///
            /// # Safety
            /// As in NCCL's documentation of this symbol.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_int {
                let used = [$($comm)?].first().copied();
                $crate::nccl::call::run(
                    stringify!($name),
                    used,
                    |$call: &mut $crate::call::Call| $body,
                )
            }
        )*

        pub(in crate::nccl) const ENTRIES: &[(&str, $crate::entry::Address)] = &[
            $((stringify!($name), || $name as *const std::ffi::c_void),)*
        ];
    };
}

use crate::entry::Address;

mod collective;
mod group;
mod init;
mod life;
mod memory;
mod query;
mod reduction;

/// The tables of all symbols.
pub(crate) const TABLES: [&[(&str, Address)]; 8] = [
    collective::ENTRIES,
    group::ENTRIES,
    init::ENTRIES,
    life::ENTRIES,
    memory::ENTRIES,
    query::ENTRIES,
    query::TEXTS,
    reduction::ENTRIES,
];
