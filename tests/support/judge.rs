//! Compares what a run with a failing driver call leaked with what the library reported.

use std::ffi::{c_int, c_void};
use std::ptr;

use cuda_core::{Context, ContextFlags, Device, Resource, drops::DropFailure};
use cuda_sim::{Leak, LeakKind, Session};
use cuda_sys::symbol as cu;

use crate::driver::check;
use crate::drop_hook::Reported;

/// Checks that each object that leaked was reported once, and that each report names a leak. Reports of what
/// a destroyed context freed with itself, and of resources that leaks do not list, are exempt.
///
/// `excused` is asked about each leak that was not reported.
///
/// # Errors
/// Describes what leaked unreported, or what was reported but did not leak.
pub fn compare(
    leaks: &[Leak],
    reported: &Reported,
    destroyed: bool,
    excused: impl Fn(&Leak) -> bool,
) -> Result<(), String> {
    leaked_unsaid(leaks, reported, excused)?;
    let failures = &reported.failures;
    let (_, mut excess) = matched(leaks, failures);
    let with_context = |failure: &DropFailure| {
        destroyed
            && matches!(
                failure.resource,
                Resource::Stream
                    | Resource::Event
                    | Resource::Module
                    | Resource::Linker
                    | Resource::Array
                    | Resource::Texture
                    | Resource::Surface
                    | Resource::ExternalMemory
                    | Resource::ExternalSemaphore
                    | Resource::PinnedMemory
                    | Resource::DeviceMemory
            )
    };
    // Reports of an address of pinned memory, whose own buffer reports it, or of memory that still exists,
    // such as a module's global, which lives as long as its module.
    let of_others = |failure: &DropFailure| {
        failure.resource == Resource::DeviceMemory
            && (failure.handle < END_OF_HOST || exists(failure.handle))
    };
    excess.retain(|failure| !with_context(failure) && !of_others(failure));
    // Global variables are freed with their module.
    let module = |failure: &DropFailure| failure.resource == Resource::Module;
    if failures.iter().any(module) {
        excess.retain(|failure| failure.resource != Resource::DeviceMemory);
    }
    if excess.is_empty() { Ok(()) } else { Err(format!("reported, but not leaked: {excess:#?}")) }
}

/// Checks that every leak was reported: the first half of [`compare`].
///
/// # Errors
/// Describes what leaked unreported.
pub fn leaked_unsaid(
    leaks: &[Leak],
    reported: &Reported,
    excused: impl Fn(&Leak) -> bool,
) -> Result<(), String> {
    let Reported { failures, counted } = reported;
    let (mut unexplained, _) = matched(leaks, failures);
    unexplained.retain(|leak| !excused(leak));
    // What a host function owns is leaked with it.
    if failures.iter().any(|failure| failure.resource == Resource::UsedByWork) {
        return Ok(());
    }
    let elsewhere = counted.saturating_sub(failures.len() as u64);
    if unexplained.len() as u64 > elsewhere {
        return Err(format!("leaked unreported: {unexplained:#?}, reported: {reported:#?}"));
    }
    Ok(())
}

/// Returns the leaks that were not reported, and the reports that name no leak.
fn matched<'a>(leaks: &[Leak], failures: &'a [DropFailure]) -> (Vec<Leak>, Vec<&'a DropFailure>) {
    // A registration is released with its communicator.
    let own = leaks.iter().filter(|leak| leak.kind != LeakKind::Registration);
    let mut unexplained: Vec<Leak> = own.cloned().collect();
    let mut excess = Vec::new();
    for failure in failures {
        let Some(kind) = kind(failure.resource) else {
            continue;
        };
        let same = |leak: &Leak| {
            let sized = matches!(kind, LeakKind::Device | LeakKind::Pinned);
            // Device memory that is mapped rather than allocated leaks as a range of addresses.
            let mapped = kind == LeakKind::Device && leak.kind == LeakKind::Addresses;
            (leak.kind == kind || mapped)
                && leak.handle == failure.handle
                && (!sized || leak.bytes == failure.bytes)
        };
        match unexplained.iter().position(same) {
            Some(at) => drop(unexplained.swap_remove(at)),
            None => excess.push(failure),
        }
    }
    (unexplained, excess)
}

/// Returns whether the driver knows memory at this address.
fn exists(address: u64) -> bool {
    let mut kind = 0u32;
    // SAFETY: the attribute's value is an `unsigned int`, which the pointer is valid for; any address
    // may be asked about.
    let result = unsafe {
        cu::cuPointerGetAttribute(
            (&raw mut kind).cast(),
            cuda_sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            address,
        )
    };
    result == cuda_sys::CUDA_SUCCESS
}

/// Addresses of the simulated devices lie beyond those of the host.
const END_OF_HOST: u64 = 1 << 48;

fn kind(resource: Resource) -> Option<LeakKind> {
    match resource {
        Resource::DeviceMemory => Some(LeakKind::Device),
        Resource::PinnedMemory => Some(LeakKind::Pinned),
        Resource::PhysicalMemory => Some(LeakKind::Physical),
        Resource::ExternalMemory => Some(LeakKind::External),
        Resource::Array => Some(LeakKind::Array),
        Resource::Texture => Some(LeakKind::Texture),
        Resource::Surface => Some(LeakKind::Surface),
        Resource::MemoryPool => Some(LeakKind::Pool),
        Resource::Stream => Some(LeakKind::Stream),
        Resource::Event => Some(LeakKind::Event),
        Resource::ExternalSemaphore => Some(LeakKind::Semaphore),
        Resource::Module => Some(LeakKind::Module),
        Resource::Linker => Some(LeakKind::Linker),
        Resource::Context => Some(LeakKind::Context),
        Resource::Graph => Some(LeakKind::Graph),
        Resource::GraphExec => Some(LeakKind::GraphExec),
        Resource::Communicator => Some(LeakKind::Communicator),
        _ => None,
    }
}

/// Calls the driver's function that releases a leaked object.
macro_rules! release {
    ($function:ident($handle:expr)) => {{
        let handle = $handle;
        // SAFETY: the owner leaked the handle, so this is its only release.
        unsafe { cu::$function(handle) }
    }};
}

/// Releases leaked objects in the simulated driver, so that leaks of thousands of runs do not add up. The
/// objects must not be used afterwards.
///
/// # Panics
/// If the simulated driver does not know an object, or has seen misuse before.
pub fn take_away(session: &Session, mut leaks: Vec<Leak>) {
    assert_eq!(session.violations(), []);
    // Contexts last: destroying one frees what was made in it.
    leaks.sort_by_key(|leak| leak.kind == LeakKind::Context);
    let contexts = leaks.iter().filter(|leak| leak.kind == LeakKind::Context).count();
    for leak in leaks {
        let handle = ptr::without_provenance_mut::<()>(leak.handle as usize);
        let result = match leak.kind {
            LeakKind::Stream => release!(cuStreamDestroy_v2(handle.cast())),
            LeakKind::Event => release!(cuEventDestroy_v2(handle.cast())),
            LeakKind::Context if leak.call.starts_with("cuGreen") => {
                // The simulated driver's handle of a green context lies eight bytes after its
                // context's.
                release!(cuGreenCtxDestroy(handle.wrapping_byte_add(8).cast()))
            }
            LeakKind::Context => release!(cuCtxDestroy_v2(handle.cast())),
            LeakKind::Module if leak.call.starts_with("cuLibrary") => {
                release!(cuLibraryUnload(handle.cast()))
            }
            LeakKind::Module => with_a_context(|| release!(cuModuleUnload(handle.cast()))),
            LeakKind::Linker => with_a_context(|| release!(cuLinkDestroy(handle.cast()))),
            LeakKind::Graph => release!(cuGraphDestroy(handle.cast())),
            LeakKind::GraphExec => release!(cuGraphExecDestroy(handle.cast())),
            LeakKind::Device if leak.call.starts_with("cuIpc") => {
                release!(cuIpcCloseMemHandle(leak.handle))
            }
            LeakKind::Pool => release!(cuMemPoolDestroy(handle.cast())),
            LeakKind::Pinned if leak.call.starts_with("cuMemHostRegister") => {
                release!(cuMemHostUnregister(handle.cast()))
            }
            LeakKind::Pinned => release!(cuMemFreeHost(handle.cast())),
            LeakKind::Device if leak.call == "cuMemAllocManaged" => {
                release!(cuMemFree_v2(leak.handle))
            }
            LeakKind::Addresses | LeakKind::Device => {
                leak.discard();
                continue;
            }
            LeakKind::Communicator => {
                abort(handle.cast());
                continue;
            }
            LeakKind::Physical => release!(cuMemRelease(leak.handle)),
            LeakKind::Semaphore => {
                with_a_context(|| release!(cuDestroyExternalSemaphore(handle.cast())))
            }
            LeakKind::External => {
                with_a_context(|| release!(cuDestroyExternalMemory(handle.cast())))
            }
            LeakKind::Array if leak.call.starts_with("cuMipmapped") => {
                release!(cuMipmappedArrayDestroy(handle.cast()))
            }
            LeakKind::Array => release!(cuArrayDestroy(handle.cast())),
            LeakKind::Texture => release!(cuTexObjectDestroy(leak.handle)),
            LeakKind::Surface => release!(cuSurfObjectDestroy(leak.handle)),
            _ => continue,
        };
        check("releasing a leaked object", result);
    }
    replace_left_behind(contexts);
    // Work may still use a resource that could not be proven idle.
    drop(session.take_violations());
}

/// Makes the library forget contexts that it left behind and that have since been destroyed.
///
/// The library keeps such contexts for ever, and waits for their work before it revokes access between
/// devices: in the next run, which may be another test's. The simulated driver reuses the handles of the
/// contexts destroyed last, and the library then takes the handle for the new context's.
fn replace_left_behind(count: usize) {
    let device = Device::get(0).expect("the simulated driver has devices");
    let new = |_| Context::new(device, ContextFlags::default()).expect("no fault is left");
    let contexts: Vec<Context> = (0..count).map(new).collect();
    drop(contexts);
}

/// Aborts a communicator of the simulated NCCL.
fn abort(communicator: *mut c_void) {
    type Abort = unsafe extern "C" fn(*mut c_void) -> c_int;
    let address = cuda_sim::symbol(c"ncclCommAbort");
    // SAFETY: the simulated NCCL has this function, with this signature.
    let abort = unsafe { std::mem::transmute::<*const c_void, Abort>(address) };
    // SAFETY: the owner leaked it, so this is its only release.
    let result = unsafe { abort(communicator) };
    assert_eq!(result, 0, "releasing a leaked communicator");
}

/// Calls `call` with device 0's primary context current, for calls that need a context.
fn with_a_context(call: impl FnOnce() -> cuda_sys::CUresult) -> cuda_sys::CUresult {
    crate::context::push(crate::context::primary(0));
    let result = call();
    crate::context::pop();
    result
}
