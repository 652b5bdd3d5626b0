//! Finds NCCL's library and its functions, once per process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use cuda_sys::CUstream;
use cuda_sys::os::{Library, LoadOnce};

use super::raw::{RawCommunicator, RawConfig, RawUniqueId, SUCCESS};
use crate::error::{Error, NcclError, Result};
use crate::process::driver;
use crate::types::Version;
use crate::util::library::{FORKED_MEANWHILE, find, functions};

/// `ncclCommDeregister`.
pub(super) type Deregister = unsafe extern "C" fn(RawCommunicator, *mut c_void) -> c_int;

functions! {
    /// The only function that is resolved in all versions.
    AnyVersion { version = c"ncclGetVersion"(*mut c_int); }
}

functions! {
    /// Functions of NCCL 2.18; most return an `ncclResult_t`.
    Nccl {
        error_string = c"ncclGetErrorString"(c_int) -> *const c_char;
        last_error = c"ncclGetLastError"(RawCommunicator) -> *const c_char;
        unique_id = c"ncclGetUniqueId"(*mut RawUniqueId);
        init_rank = c"ncclCommInitRankConfig"(
            *mut RawCommunicator, c_int, RawUniqueId, c_int, *mut RawConfig);
        split = c"ncclCommSplit"(RawCommunicator, c_int, c_int, *mut RawCommunicator, *mut RawConfig);
        count = c"ncclCommCount"(RawCommunicator, *mut c_int);
        user_rank = c"ncclCommUserRank"(RawCommunicator, *mut c_int);
        async_error = c"ncclCommGetAsyncError"(RawCommunicator, *mut c_int);
        finalize = c"ncclCommFinalize"(RawCommunicator);
        destroy = c"ncclCommDestroy"(RawCommunicator);
        abort = c"ncclCommAbort"(RawCommunicator);
        group_start = c"ncclGroupStart"();
        group_end = c"ncclGroupEnd"();
        create_scaled_sum = c"ncclRedOpCreatePreMulSum"(
            *mut c_int, *mut c_void, c_int, c_int, RawCommunicator);
        destroy_reduction = c"ncclRedOpDestroy"(c_int, RawCommunicator);
        all_reduce = c"ncclAllReduce"(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream);
        reduce_scatter = c"ncclReduceScatter"(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream);
        reduce = c"ncclReduce"(
            *const c_void, *mut c_void, usize, c_int, c_int, c_int, RawCommunicator, CUstream);
        broadcast = c"ncclBroadcast"(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream);
        all_gather = c"ncclAllGather"(
            *const c_void, *mut c_void, usize, c_int, RawCommunicator, CUstream);
        send = c"ncclSend"(*const c_void, usize, c_int, c_int, RawCommunicator, CUstream);
        receive = c"ncclRecv"(*mut c_void, usize, c_int, c_int, RawCommunicator, CUstream);
    }
    // From NCCL 2.19 on.
    optional {
        register = c"ncclCommRegister"(RawCommunicator, *mut c_void, usize, *mut *mut c_void);
        deregister = c"ncclCommDeregister"(RawCommunicator, *mut c_void);
        // From NCCL 2.23 on.
        init_rank_scalable = c"ncclCommInitRankScalable"(
            *mut RawCommunicator, c_int, c_int, c_int, *mut RawUniqueId, *mut RawConfig);
        // From NCCL 2.27 on.
        shrink = c"ncclCommShrink"(
            RawCommunicator, *mut c_int, c_int, *mut RawCommunicator, *mut RawConfig, c_int);
        // From NCCL 2.29 on.
        growth_id = c"ncclCommGetUniqueId"(RawCommunicator, *mut RawUniqueId);
        grow = c"ncclCommGrow"(
            RawCommunicator, c_int, *const RawUniqueId, c_int, *mut RawCommunicator, *mut RawConfig);
    }
}

struct Found {
    nccl: Nccl,
    version: Version,
    /// The library of the functions, unless the program [installed](install) them.
    library: Option<Library>,
}

static LOADED: LoadOnce<Result<Found>> = LoadOnce::new();

/// The oldest version that this module works with.
const FLOOR: Version = Version::new(2, 18);

/// Returns NCCL's functions; fails if CUDA cannot be called. The first call loads the library, for
/// the life of the process.
pub(super) fn nccl() -> Result<&'static Nccl> {
    driver::ensure()?;
    found().map(|found| &found.nccl)
}

/// The error for a function that this version of NCCL lacks.
pub(super) fn missing(op: &'static str) -> Error {
    found().map_or_else(|error| error, |it| NcclError::Missing { op, found: it.version }.into())
}

fn found() -> Result<&'static Found> {
    match LOADED.get_or_init(open) {
        Some(loaded) => loaded.as_ref().map_err(Clone::clone),
        None => Err(NcclError::NotFound { tried: FORKED_MEANWHILE.to_owned() }.into()),
    }
}

/// The environment variable that names the library to use.
const OVERRIDE: &str = "CUDA_CORE_NCCL";

fn open() -> Result<Found> {
    let found = find(
        OVERRIDE,
        &["libnccl.so.2"],
        |by_name| by_name,
        |library| {
            // SAFETY: the library is NCCL by its name, or the user's replacement; the signatures of
            // these functions have not changed since 2.18. The library is never unloaded.
            let found = unsafe { resolve(&mut |name| library.symbol(name)) }?;
            Ok(found.map(|found| Found { library: Some(library), ..found }))
        },
    );
    found.map_err(|tried| NcclError::NotFound { tried })?
}

/// Resolves NCCL's functions; returns an inner error for a version that is too old.
///
/// # Safety
/// As `resolve` of the tables, for the functions of `nccl.h`.
unsafe fn resolve(
    symbol: &mut dyn FnMut(&CStr) -> *const c_void,
) -> std::result::Result<Result<Found>, String> {
    // SAFETY: the caller's promise.
    let any = unsafe { AnyVersion::resolve(symbol) }?;
    let mut number = 0;
    // SAFETY: the function writes one int, to a local that outlives the call.
    let code = unsafe { (any.version)(&mut number) };
    if code != SUCCESS {
        return Err(format!("ncclGetVersion returned {code}"));
    }
    let version = version_of(number);
    if version < FLOOR {
        return Ok(Err(NcclError::TooOld { found: version }.into()));
    }
    // SAFETY: the caller's promise.
    let nccl = unsafe { Nccl::resolve(symbol) }?;
    Ok(Ok(Found { nccl, version, library: None }))
}

/// Returns the version with this `NCCL_VERSION_CODE`: 2708 is 2.7.8, 21805 is 2.18.5.
fn version_of(number: c_int) -> Version {
    let number = u32::try_from(number).unwrap_or(0);
    match number {
        0..10_000 => Version::new(number / 1000, number % 1000 / 100),
        _ => Version::new(number / 10_000, number % 10_000 / 100),
    }
}

/// Returns NCCL's version without its patch level: `ncclGetVersion`. Needs no device.
///
/// # Errors
/// [`NcclError::NotFound`], [`NcclError::TooOld`].
///
/// ```no_run
/// use cuda_core::{Version, nccl};
///
/// if nccl::version()? >= Version::new(2, 19) {
///     println!("memory can be registered");
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("ncclGetVersion"))]
pub fn version() -> Result<Version> {
    found().map(|found| found.version)
}

/// Returns the address of a function that this module lacks, in the NCCL that it has loaded. Such
/// functions take [`Communicator::as_raw`](super::Communicator::as_raw), whose rules apply. What
/// they enqueue before they return is ordered by [`Stream::work`](crate::Stream::work). A call that
/// returns `ncclInProgress` may enqueue later; calls of communicators that
/// [block](super::CommunicatorOptions::blocking) do not.
///
/// # Errors
/// [`NcclError::Missing`] if this NCCL does not have the function, and for every function if the
/// program called [`install`]; [`NcclError::NotFound`], [`NcclError::TooOld`].
///
/// ```no_run
/// use std::ffi::{c_int, c_void};
/// use cuda_core::{DeviceBuffer, Result, Stream, nccl, sys::CUstream};
///
/// /// Gives the first rank the elements of all, in one call of NCCL 2.28.
/// fn gather(
///     communicator: &mut nccl::Communicator, // which blocks
///     stream: &Stream,
///     own: &DeviceBuffer<u8>,
///     all: &mut DeviceBuffer<u8>,
/// ) -> Result<()> {
///     type Gather = unsafe extern "C" fn(
///         *const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, CUstream) -> c_int;
///     const UINT8: c_int = 1;
///     let gather = nccl::symbol(c"ncclGather")?;
///     // SAFETY: `nccl.h` declares the function so.
///     let gather = unsafe { std::mem::transmute::<_, Gather>(gather) };
///     assert_eq!(all.len(), own.len() * communicator.size());
///     let (from, to, count) = (own.as_raw() as *const _, all.as_raw() as *mut _, own.len());
///     let work = stream.work().read(own).write(all);
///     let call = |raw| {
///         // SAFETY: all ranks make this call, and no other thread has the communicator; both buffers are as long
///         // as the call says, and are used in the order of the stream.
///         unsafe { gather(from, to, count, UINT8, 0, communicator.as_raw(), raw) }
///     };
///     // SAFETY: the call enqueues on this stream, before it returns, what uses the memory as declared.
///     let code = unsafe { work.enqueue(call) }?;
///     assert_eq!(code, 0, "NCCL has enqueued it");
///     Ok(())
/// }
/// ```
pub fn symbol(name: &'static CStr) -> Result<NonNull<c_void>> {
    let found = found()?;
    let address = found.library.as_ref().and_then(|it| NonNull::new(it.symbol(name).cast_mut()));
    address.ok_or_else(|| missing(name.to_str().unwrap_or("nccl::symbol")))
}

/// Takes NCCL's functions from `symbol`, instead of from a library that is loaded at the first
/// call. This is for a program that is linked with NCCL or brings its own. `symbol` returns null
/// for a function that it lacks.
///
/// # Errors
/// [`Error::Invalid`] if the process already has an NCCL, or has looked for one;
/// [`NcclError::NotFound`] if a function of 2.18 is missing, [`NcclError::TooOld`].
///
/// # Safety
/// Each non-null address is that of a function with the symbol's signature in `nccl.h`, for the
/// life of the process.
///
/// ```no_run
/// # fn linked(_: &std::ffi::CStr) -> *const std::ffi::c_void { std::ptr::null() }
/// // SAFETY: `linked` knows the functions of the NCCL that is linked with this program.
/// unsafe { cuda_core::nccl::install(linked) }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub unsafe fn install(mut symbol: impl FnMut(&CStr) -> *const c_void) -> Result<()> {
    // SAFETY: the caller's promise.
    let found =
        unsafe { resolve(&mut symbol) }.map_err(|tried| NcclError::NotFound { tried })??;
    let set = LOADED.set(Ok(found));
    set.map_err(|_| Error::invalid("nccl::install", "the process has looked for NCCL already"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_versions_of_either_form() {
        assert_eq!(version_of(2708), Version::new(2, 7));
        assert_eq!(version_of(21805), Version::new(2, 18));
        assert_eq!(version_of(22809), Version::new(2, 28));
        assert!(version_of(21706) < FLOOR && version_of(21801) >= FLOOR);
    }

    #[test]
    fn an_old_version_is_refused_by_its_number_and_a_bare_one_by_what_it_lacks() {
        unsafe extern "C" fn old(version: *mut c_int) -> c_int {
            // SAFETY: the caller passes the place of an int.
            unsafe { version.write(21706) };
            SUCCESS
        }
        unsafe extern "C" fn new(version: *mut c_int) -> c_int {
            // SAFETY: as above.
            unsafe { version.write(22304) };
            SUCCESS
        }
        let only = |version: unsafe extern "C" fn(*mut c_int) -> c_int| {
            let symbol = move |name: &CStr| match name.to_bytes() {
                b"ncclGetVersion" => version as *const c_void,
                _ => std::ptr::null(),
            };
            // SAFETY: the only function has the signature of that name.
            unsafe { resolve(&mut { symbol }) }.map(|found| found.map(|found| found.version))
        };
        let too_old = NcclError::TooOld { found: Version::new(2, 17) };
        assert_eq!(only(old), Ok(Err(too_old.into())));
        assert_eq!(only(new), Err("it lacks ncclGetErrorString".to_owned()));
    }
}
