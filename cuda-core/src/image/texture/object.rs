//! The common part of textures and surfaces: a handle, its resource, and its users.

#![allow(private_bounds, reason = "that bound is the seal")]

use std::marker::PhantomData;
use std::mem;

use cuda_sys::{CUDA_RESOURCE_DESC, CUresult};

use super::view::Made;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::image::Texel;
use crate::process::{Failed, Owned, Release, deferred};
use crate::timeline::ledger::{Access, InGraphs, Ledger, Touch, WHOLE};
use crate::types::Resource;
use crate::util::{OnDrop, debug_by};

pub(crate) type Destroy = unsafe extern "C" fn(u64) -> CUresult;
pub(crate) type Describe = unsafe extern "C" fn(*mut CUDA_RESOURCE_DESC, u64) -> CUresult;

/// A kind of image object: textures or surfaces.
pub(crate) trait ObjectKind: Send + 'static {
    /// The resource as which an object that could not be destroyed is reported.
    const RESOURCE: Resource;
    /// The name of the kind in errors.
    const NAME: &'static str;
    /// The driver call that destroys an object.
    const DESTROY: (&'static str, Destroy);
    /// The driver call that describes what an object was created from.
    const DESCRIBE: (&'static str, Describe);
}

/// A handle by which kernels access an array, or device memory; [`Texture`](crate::image::Texture) and
/// [`Surface`](crate::image::Surface) are aliases of it. This type provides what both share.
pub struct ImageObject<T: Texel, K: ObjectKind> {
    object: Owned<LiveObject<K>>,
    _texels: PhantomData<T>,
}

/// A texture or a surface and what it was created from, while both are borrowed: a kernel's argument.
pub struct BoundObject<'a, K: ObjectKind> {
    pub(crate) handle: u64,
    /// The context in which the handle is valid.
    pub(crate) context: &'a Context,
    pub(crate) touches: [Touch<'a>; 2],
    _kind: PhantomData<K>,
}

struct LiveObject<K> {
    // INVARIANT: this crate owns the handle, which only `release` destroys.
    handle: u64,
    context: Context,
    /// The work to which the handle was passed, as accesses to the ledger's only byte.
    ledger: Ledger,
    /// What the object was created from; dropped when the handle is destroyed.
    made: Made,
    _kind: PhantomData<K>,
}

impl<T: Texel, K: ObjectKind> ImageObject<T, K> {
    /// Creates an object that owns `handle`, which belongs to the context.
    pub(super) fn own(context: &Context, handle: u64, made: Made) -> Self {
        let (context, ledger) = (context.clone(), Ledger::default());
        let object = Owned::new(LiveObject { handle, context, ledger, made, _kind: PhantomData });
        Self { object, _texels: PhantomData }
    }

    /// Returns the device that the object is on.
    pub fn device(&self) -> Device {
        self.object.context.device()
    }

    /// Returns the driver's handle, valid while `self` lives; zero for an object that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> u64 {
        self.object.get().map_or(0, |live| live.handle)
    }

    /// Returns the argument for work that accesses what the object was created from.
    pub(super) fn bound<'a>(&'a self, made: &Made, touch: Touch<'a>) -> Result<BoundObject<'a, K>> {
        let why = "the object was created from other memory than the memory given here";
        Error::unless(self.object.made.is(made), K::NAME, why)?;
        let LiveObject { handle, context, ledger, .. } = self.object.live()?;
        let own = Touch::shared(ledger, WHOLE, Access::Read, InGraphs::Kept);
        Ok(BoundObject { handle: *handle, context, touches: [own, touch], _kind: PhantomData })
    }

    /// Returns the driver's description of what the object was created from:
    /// `cuTexObjectGetResourceDesc` or `cuSurfObjectGetResourceDesc`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuTexObjectGetResourceDesc", "cuSurfObjectGetResourceDesc"))]
    #[doc(alias("cudaGetTextureObjectResourceDesc", "cudaGetSurfaceObjectResourceDesc"))]
    pub fn resource(&self) -> Result<CUDA_RESOURCE_DESC> {
        let (op, describe) = K::DESCRIBE;
        // SAFETY: the handle is live while `self` is; the call writes one structure of this type, to
        // an exclusive borrow.
        self.ask(op, |handle, resource| unsafe { describe(resource, handle) })
    }

    /// Returns a description that the driver writes about the object.
    pub(super) fn ask<R: Default>(
        &self,
        op: &'static str,
        call: impl FnOnce(u64, &mut R) -> CUresult,
    ) -> Result<R> {
        let live = self.object.live()?;
        live.context.ask(op, R::default(), |to| call(live.handle, to))
    }

    /// Destroys the object, once no work uses it: `cuTexObjectDestroy` or `cuSurfObjectDestroy`.
    /// Dropping it does the same, but reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook), and leaves an object that graphs use to the last of
    /// those graphs.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a graph uses the object, and the errors of the wait for that work; the
    /// object is then unchanged. The driver's if the call that destroys the object fails; the object is
    /// then [given up](Error::GivenUp).
    #[doc(alias("cuTexObjectDestroy", "cuSurfObjectDestroy"))]
    #[doc(alias("cudaDestroyTextureObject", "cudaDestroySurfaceObject"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        let free = self.object.live().and_then(|live| {
            let why = "a graph uses the object: drop the graph and its executables first";
            Error::unless(!live.ledger.is_in_graphs(), "close", why)
        });
        free.and_then(|()| self.object.release()).map_err(|error| Rejected::new(error, self))
    }
}

debug_by! {
    [T: Texel, K: ObjectKind] ImageObject<T, K>: |it| "ImageObject" {
        kind: K::RESOURCE, handle: it.as_raw(), array: it.object.made.array(), device: it.device()
    }
}

debug_by! { [K: ObjectKind] BoundObject<'_, K>: |it| "BoundObject" { handle: it.handle } }

impl<K: ObjectKind> Release for LiveObject<K> {
    const RESOURCE: Resource = K::RESOURCE;

    fn number(&self) -> u64 {
        self.handle
    }

    fn release(&mut self) -> Result<(), Failed> {
        if let Some(shared) = self.ledger.shared().filter(|shared| shared.keepers() > 0).cloned() {
            let (handle, context, made) = (self.handle, self.context.clone(), self.made.clone());
            let ledger = mem::take(&mut self.ledger);
            let left = Self { handle, context, ledger, made, _kind: PhantomData };
            shared.take_over(OnDrop::new(move || left.leave_graphs()));
            return Ok(());
        }
        self.ledger.last_uses(&WHOLE).wait_host()?;
        let (op, destroy) = K::DESTROY;
        // SAFETY: the handle is this crate's and live, by the invariant; the work to which it was
        // passed is done.
        self.context.release(op, || unsafe { destroy(self.handle) })
    }
}

impl<K: ObjectKind> LiveObject<K> {
    /// Destroys an object that was dropped while graphs used it. The drop of the last graph does not
    /// wait for work that uses the object.
    fn leave_graphs(self) {
        let done = self.ledger.last_uses(&WHOLE).are_known_reached();
        let destroy = move || drop(Owned::new(self));
        if done { destroy() } else { deferred::run_elsewhere(destroy) }
    }
}
