//! What textures and surfaces share: a handle, its resource, and its users.

use std::mem::MaybeUninit;

use cuda_sys::{CUDA_RESOURCE_DESC, CUresourcetype, CUresult};

use crate::context::Context;
use crate::error::{Error, Result, check};
use crate::process::owned::{Owned, Release};
use crate::process::release::FailedRelease;
use crate::timeline::ledger::{Access, Ledger, LedgerOf, Touch};
use crate::types::resource::Resource;

/// A texture or a surface.
pub(super) trait ObjectKind: Send + 'static {
    /// What an object that could not be destroyed is reported as.
    const RESOURCE: Resource;
    /// The call that destroys one.
    const DESTROY: &'static str;

    /// # Safety
    /// The handle is live, and no work uses it.
    unsafe fn destroy(handle: u64) -> CUresult;

    /// # Safety
    /// The handle is live.
    unsafe fn resource(handle: u64, resource: *mut CUDA_RESOURCE_DESC) -> CUresult;
}

/// An object that is destroyed behind all work that uses it.
pub(super) struct Object<K: ObjectKind>(Owned<Live<K>>);

struct Live<K> {
    // INVARIANT: a handle of this crate's, destroyed only by `release`.
    handle: u64,
    context: Context,
    /// The work that was passed the handle, as accesses to its only byte.
    ledger: Ledger,
    kind: std::marker::PhantomData<K>,
}

const ONLY_BYTE: std::ops::Range<usize> = 0..1;

impl<K: ObjectKind> Object<K> {
    /// An object that owns `handle`.
    pub(super) fn new(context: &Context, handle: u64) -> Self {
        Self(Owned::new(Live {
            handle,
            context: context.clone(),
            ledger: Ledger::default(),
            kind: std::marker::PhantomData,
        }))
    }

    pub(super) fn handle(&self) -> u64 {
        self.0.get().map_or(0, |live| live.handle)
    }

    /// The access of work that is passed the handle, and the context in which the handle is valid.
    pub(super) fn touch(&self) -> Result<(Touch<'_>, &Context)> {
        self.0.live()?;
        let touch = Touch {
            ledger: LedgerOf::Shared(&self.0.ledger),
            range: ONLY_BYTE,
            access: Access::Read,
        };
        Ok((touch, &self.0.context))
    }

    /// The driver's description of the object's resource.
    pub(super) fn resource(&self, op: &'static str) -> Result<CUDA_RESOURCE_DESC> {
        self.ask(op, |handle, resource| {
            // SAFETY: the handle is live while `self` is; the call writes one structure of this
            // type, to a local of `ask` that outlives it.
            unsafe { K::resource(handle, resource) }
        })
    }

    /// A description that the driver writes about the object. All zeroes are a valid `R`.
    pub(super) fn ask<R: RawDescriptor>(
        &self,
        op: &'static str,
        call: impl FnOnce(u64, *mut R) -> CUresult,
    ) -> Result<R> {
        self.0.live()?;
        let _entered = self.0.context.enter_briefly()?;
        let mut answer = MaybeUninit::zeroed();
        check(op, call(self.0.handle, answer.as_mut_ptr()))?;
        // SAFETY: zeroed at first, which is a valid value, then written by the driver.
        Ok(unsafe { answer.assume_init() })
    }

    /// What `Drop` does, but returns the error.
    pub(super) fn destroy(&mut self) -> Result<()> {
        self.0.release()
    }
}

/// A description of the driver's, of which all zeroes are a valid value.
///
/// # Safety
/// All zeroes are a valid value of the type.
pub(super) unsafe trait RawDescriptor {}

// SAFETY: integers, and a union of addresses, handles and integers.
unsafe impl RawDescriptor for CUDA_RESOURCE_DESC {}
// SAFETY: integers and floats.
unsafe impl RawDescriptor for cuda_sys::CUDA_TEXTURE_DESC {}

impl<K: ObjectKind> Release for Live<K> {
    const RESOURCE: Resource = K::RESOURCE;

    fn number(&self) -> u64 {
        self.handle
    }

    fn release(&mut self) -> Result<(), FailedRelease> {
        let fences = self.ledger.conflicts(&ONLY_BYTE, Access::Write, None);
        fences.wait_host()?;
        self.context.release(K::DESTROY, || {
            // SAFETY: this crate's and live, by the invariant; the work that was passed the handle is
            // done.
            unsafe { K::destroy(self.handle) }
        })
    }
}

/// A resource description of this type, otherwise empty.
pub(super) fn description(kind: CUresourcetype) -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC { resType: kind, ..CUDA_RESOURCE_DESC::default() }
}

/// The error for memory that the object was not created from.
pub(super) fn other_memory(op: &'static str) -> Error {
    Error::Flags { op, why: "made of other memory than it is used with" }
}
