//! What a run with a failing driver call left behind, and whether it said so.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_core::{DropFailure, Resource};
use cuda_sim::{Leak, LeakKind};
use cuda_sys::symbol as cu;

use crate::driver::check;

/// The drops that fail from [`begin`](Self::begin) to [`end`](Self::end), as the hook is told of
/// them.
#[derive(Debug)]
pub struct DropFailures {
    seen: Arc<Mutex<Vec<DropFailure>>>,
    counted: u64,
}

/// What failed between two moments.
#[derive(Debug, Default)]
pub struct Reported {
    /// As the hook was told.
    pub failures: Vec<DropFailure>,
    /// As the counter counted them; the rest went to a hook that the test set itself.
    pub counted: u64,
}

impl DropFailures {
    /// Sets the process's hook.
    #[must_use]
    pub fn begin() -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&seen);
        cuda_core::set_drop_hook(move |failure: &DropFailure| {
            locked(&hook).push(failure.clone());
        });
        Self {
            seen,
            counted: cuda_core::drop_failures(),
        }
    }

    /// How often the hook was told so far that such a thing could not be released.
    #[must_use]
    pub fn reported(&self, resource: Resource) -> usize {
        let seen = locked(&self.seen);
        let same = seen.iter().filter(|failure| failure.resource == resource);
        same.count()
    }

    /// Takes the hook away and says what it was told.
    #[must_use]
    pub fn end(self) -> Reported {
        cuda_core::take_drop_hook();
        Reported {
            failures: std::mem::take(&mut *locked(&self.seen)),
            counted: cuda_core::drop_failures() - self.counted,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What exists must be what was reported, each once. Reported may also be what a destroyed context
/// took along, and what cannot be counted.
///
/// Where nothing was said, `excused` is asked.
///
/// # Errors
/// In words, what leaked unsaid, or was said to leak and did not.
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
                    | Resource::PinnedMemory
                    | Resource::DeviceMemory
            )
    };
    // Pinned memory by another name: whose it is says its own buffer.
    // A module's global, say, is there for as long as its module.
    let of_others = |failure: &DropFailure| {
        failure.resource == Resource::DeviceMemory
            && (failure.handle < END_OF_HOST || exists(failure.handle))
    };
    excess.retain(|failure| !with_context(failure) && !of_others(failure));
    // Variables stay and go with their module.
    let module = |failure: &DropFailure| failure.resource == Resource::Module;
    if failures.iter().any(module) {
        excess.retain(|failure| failure.resource != Resource::DeviceMemory);
    }
    if excess.is_empty() {
        Ok(())
    } else {
        Err(format!("reported, but not leaked: {excess:#?}"))
    }
}

/// The first half of [`compare`]: what exists was reported.
///
/// # Errors
/// In words, what leaked unsaid.
pub fn leaked_unsaid(
    leaks: &[Leak],
    reported: &Reported,
    excused: impl Fn(&Leak) -> bool,
) -> Result<(), String> {
    let Reported { failures, counted } = reported;
    let (mut unexplained, _) = matched(leaks, failures);
    unexplained.retain(|leak| !excused(leak));
    let elsewhere = counted.saturating_sub(failures.len() as u64);
    if unexplained.len() as u64 > elsewhere {
        return Err(format!(
            "leaked without a word: {unexplained:#?}, reported: {reported:#?}"
        ));
    }
    Ok(())
}

/// Leaks that were not reported, and what was reported but is no leak.
fn matched<'a>(leaks: &[Leak], failures: &'a [DropFailure]) -> (Vec<Leak>, Vec<&'a DropFailure>) {
    let mut unexplained = leaks.to_vec();
    let mut excess = Vec::new();
    for failure in failures {
        let Some(kind) = kind(failure.resource) else {
            continue;
        };
        let same = |leak: &Leak| {
            let sized = matches!(kind, LeakKind::Device | LeakKind::Pinned);
            // Device memory that is mapped rather than allocated is named by its addresses.
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

/// Whether there is memory at an address of a device.
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
        _ => None,
    }
}

/// Takes leaked objects out of the simulated driver, so that thousands of runs do not add up. Nobody
/// may use them any more.
///
/// # Panics
/// If the simulated driver does not know them.
pub fn take_away(mut leaks: Vec<Leak>) {
    // Contexts last: they take along what was made in them.
    leaks.sort_by_key(|leak| leak.kind == LeakKind::Context);
    for leak in leaks {
        let handle = ptr::without_provenance_mut::<()>(leak.handle as usize);
        let result = match leak.kind {
            // SAFETY: the handle was leaked: nobody else destroys it.
            LeakKind::Stream => unsafe { cu::cuStreamDestroy_v2(handle.cast()) },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Event => unsafe { cu::cuEventDestroy_v2(handle.cast()) },
            LeakKind::Context if leak.call.starts_with("cuGreen") => {
                // The simulated driver's: eight behind the context's.
                let green = handle.wrapping_byte_add(8).cast();
                // SAFETY: it was leaked, so nobody else gives it back.
                unsafe { cu::cuGreenCtxDestroy(green) }
            }
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Context => unsafe { cu::cuCtxDestroy_v2(handle.cast()) },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Module if leak.call.starts_with("cuLibrary") => unsafe {
                cu::cuLibraryUnload(handle.cast())
            },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Module => with_a_context(|| unsafe { cu::cuModuleUnload(handle.cast()) }),
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Linker => with_a_context(|| unsafe { cu::cuLinkDestroy(handle.cast()) }),
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Graph => unsafe { cu::cuGraphDestroy(handle.cast()) },
            // SAFETY: it was leaked, so nobody else closes it.
            LeakKind::Device if leak.call.starts_with("cuIpc") => unsafe {
                cu::cuIpcCloseMemHandle(leak.handle)
            },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Pool => unsafe { cu::cuMemPoolDestroy(handle.cast()) },
            // SAFETY: it was leaked, so nobody else unregisters it.
            LeakKind::Pinned if leak.call.starts_with("cuMemHostRegister") => unsafe {
                cu::cuMemHostUnregister(handle.cast())
            },
            // SAFETY: it was leaked, so nobody else frees it.
            LeakKind::Pinned => unsafe { cu::cuMemFreeHost(handle.cast()) },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Device if leak.call == "cuMemAllocManaged" => unsafe {
                cu::cuMemFree_v2(leak.handle)
            },
            LeakKind::Addresses | LeakKind::Device => {
                leak.discard();
                continue;
            }
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Physical => unsafe { cu::cuMemRelease(leak.handle) },
            LeakKind::Semaphore => {
                // SAFETY: it was leaked, so nobody else gives it back.
                with_a_context(|| unsafe { cu::cuDestroyExternalSemaphore(handle.cast()) })
            }
            LeakKind::External => {
                // SAFETY: it was leaked, so nobody else gives it back.
                with_a_context(|| unsafe { cu::cuDestroyExternalMemory(handle.cast()) })
            }
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Array if leak.call.starts_with("cuMipmapped") => unsafe {
                cu::cuMipmappedArrayDestroy(handle.cast())
            },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Array => unsafe { cu::cuArrayDestroy(handle.cast()) },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Texture => unsafe { cu::cuTexObjectDestroy(leak.handle) },
            // SAFETY: it was leaked, so nobody else gives it back.
            LeakKind::Surface => unsafe { cu::cuSurfObjectDestroy(leak.handle) },
            _ => continue,
        };
        check("taking a leak away", result);
    }
}

/// A call that wants some context to be current.
fn with_a_context(call: impl FnOnce() -> cuda_sys::CUresult) -> cuda_sys::CUresult {
    crate::context::push(crate::context::primary(0));
    let result = call();
    crate::context::pop();
    result
}
