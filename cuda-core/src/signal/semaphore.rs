//! Semaphores of another interface to the device, such as Vulkan or Direct3D.

#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::ptr;

use cuda_sys::{CUexternalSemaphore, symbol as cu};

use crate::context::{Context, Entered, of_context};
use crate::error::{Error, Rejected, Result, WrongContext};
use crate::process::{Failed, Handle, Owned, Release};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, InGraphs, Ledger, Touch, WHOLE};
use crate::timeline::{Bound, StreamCore};
use crate::types::Resource;
use crate::util::{debug_by, raw_enum};

raw_enum! {
    /// The kind of semaphore that an [`ExternalSemaphore`] imports.
    ///
    /// ```
    /// use cuda_core::interop::ExternalSemaphoreKind;
    ///
    /// # let has_type_create_info = true;
    /// let kind = match has_type_create_info {
    ///     true => ExternalSemaphoreKind::Timeline, // VkSemaphoreTypeCreateInfo says so
    ///     false => ExternalSemaphoreKind::Binary,
    /// };
    /// ```
    ExternalSemaphoreKind: CUexternalSemaphoreHandleType {
        /// Signalled or not; one wait resets it. The value is ignored.
        Binary = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
        /// A number that only grows.
        Timeline = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
    }
}

/// A semaphore of another interface to the device, which orders that interface's work and the work of
/// streams.
///
/// Dropping or closing a semaphore waits for the work that signals it or waits for it. A wait that is never
/// satisfied holds up its stream forever, and with it everything that waits for the stream.
///
/// ```no_run
/// # #[cfg(unix)]
/// # fn draw(stream: &cuda_core::Stream, fd: std::os::fd::OwnedFd) -> cuda_core::Result<()> {
/// use cuda_core::interop::{ExternalSemaphore, ExternalSemaphoreKind};
///
/// let kind = ExternalSemaphoreKind::Timeline;
/// // SAFETY: from vkGetSemaphoreFdKHR, of a timeline semaphore on the same device.
/// let semaphore = unsafe { ExternalSemaphore::import_fd(stream.context(), fd, kind) };
/// let semaphore = semaphore?;
/// stream.wait_external(&semaphore, 1)?; // until Vulkan has drawn
/// // … work on the image …
/// stream.signal_external(&semaphore, 2)?; // Vulkan may show it
/// # Ok(())
/// # }
/// ```
pub struct ExternalSemaphore(Owned<ImportedSemaphore>);

struct ImportedSemaphore {
    // INVARIANT: imported into `context`; destroyed only by `release`.
    raw: Handle<CUexternalSemaphore>,
    context: Context,
    /// Counts signals and waits as reads, and the destruction as a write.
    uses: Ledger,
}

impl ExternalSemaphore {
    /// Imports a semaphore by a file descriptor, which Vulkan calls `OPAQUE_FD`:
    /// `cuImportExternalSemaphore`. The driver gets a duplicate of the descriptor; on success `fd`
    /// is closed.
    ///
    /// # Errors
    /// The driver's, `OPERATING_SYSTEM` among them if the process can have no more descriptors. The error
    /// returns the descriptor, still open.
    ///
    /// # Safety
    /// `fd` is that of a semaphore of that kind on the context's device. The semaphore is used as the other
    /// interface demands: each signal of a binary semaphore is followed by one wait; the value of a timeline
    /// only grows.
    #[doc(alias("cuImportExternalSemaphore", "cudaImportExternalSemaphore"))]
    #[cfg(unix)]
    pub unsafe fn import_fd(
        context: &Context,
        fd: OwnedFd,
        kind: ExternalSemaphoreKind,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let mut handle = cuda_sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: kind.as_raw(),
            ..Default::default()
        };
        let import = |raw: &mut CUexternalSemaphore, fd| {
            handle.handle.fd = fd;
            // SAFETY: the call reads a description and writes one handle, both locals that outlive
            // it; the descriptor is open, and of such a semaphore by the caller's promise; a live
            // context is current.
            unsafe { cu::cuImportExternalSemaphore(raw, &handle) }
        };
        // SAFETY: just imported, from the descriptor that the caller's promise is about.
        let own = |raw| unsafe { Self::from_raw(raw, context) };
        let op = "cuImportExternalSemaphore";
        context.import_fd(op, &fd, import, own).map_err(|error| Rejected::new(error, fd))
    }

    /// Takes ownership of a semaphore that was imported by a raw call, for kinds of handles that have no
    /// method here. Makes no driver call.
    ///
    /// # Safety
    /// `raw` came from `cuImportExternalSemaphore` with the context current, and no other code owns
    /// it. The conditions of [`ExternalSemaphore::import_fd`] hold.
    pub unsafe fn from_raw(raw: CUexternalSemaphore, context: &Context) -> Self {
        Self(Owned::new(ImportedSemaphore {
            raw: Handle(raw),
            context: context.clone(),
            uses: Ledger::default(),
        }))
    }

    of_context! { "The context that it was imported into.": |it| &it.0.context }

    /// The driver's handle, valid while `self` lives; null for a semaphore that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUexternalSemaphore {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// Returns what a call on the stream needs: the handle, the bound stream, and a scope with its context
    /// current. CUDA documents for other calls on streams, but not for these, that they work without a
    /// current context.
    fn bind<'s>(
        &self,
        op: &'static str,
        core: &'s StreamCore,
    ) -> Result<(CUexternalSemaphore, Bound<'s>, Option<Entered>)> {
        self.0.live()?;
        core.device().require_same(op, self.device())?;
        if core.context() != self.context() {
            return Err(Error::from(WrongContext { op, what: "the semaphore".into() }));
        }
        let stream = core.bind(op)?;
        let entered = match stream.entered() {
            Some(_) => None,
            None => Some(self.context().enter_briefly()?),
        };
        Ok((self.0.raw.0, stream, entered))
    }

    /// Returns the access of a signal or a wait. The ledger counts all as readers: none waits for another.
    fn touch(&self) -> Touch<'_> {
        Touch::shared(&self.0.uses, WHOLE, Access::Read, InGraphs::Kept)
    }

    /// Destroys the semaphore, once no work uses it: `cuDestroyExternalSemaphore`. Dropping it
    /// reports a failure to the hook of [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// # Errors
    /// Those of the wait for that work, with the semaphore unchanged; the driver's error of the call that
    /// destroys the semaphore, which is then [given up](Error::GivenUp).
    #[doc(alias("cuDestroyExternalSemaphore", "cudaDestroyExternalSemaphore"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.0.release().map_err(|error| Rejected::new(error, self))
    }
}

/// # Semaphores of other interfaces
impl<K: StreamKind> Stream<K> {
    /// Signals a semaphore of another interface when everything enqueued so far has completed:
    /// `cuSignalExternalSemaphoresAsync`. A timeline semaphore then has the value.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and [`Error::WrongContext`] for one that another context of the
    /// device imported, before any driver call; [`Error::NotCapturable`]; the driver's.
    #[doc(alias("cuSignalExternalSemaphoresAsync", "cudaSignalExternalSemaphoresAsync"))]
    pub fn signal_external(&self, semaphore: &ExternalSemaphore, value: u64) -> Result<()> {
        let op = "cuSignalExternalSemaphoresAsync";
        let core = self.core();
        let (raw, stream, _entered) = semaphore.bind(op, core)?;
        let mut signal = cuda_sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::default();
        signal.params.fence.value = value;
        let call = |stream| {
            // SAFETY: the call reads one handle and one description, both locals that outlive it; the
            // semaphore stays until the mark that is made of this has completed.
            unsafe { cu::cuSignalExternalSemaphoresAsync(&raw, &signal, 1, stream) }
        };
        stream.submit(op, &mut [semaphore.touch()], Default::default, call).1
    }

    /// Makes work enqueued from now on wait until a semaphore of another interface is signalled, or
    /// a timeline has reached the value: `cuWaitExternalSemaphoresAsync`, after a
    /// [checkpoint](Stream::checkpoint).
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and [`Error::WrongContext`] for one that another context of the
    /// device imported, before any driver call; [`Error::NotCapturable`]; the driver's.
    #[doc(alias("cuWaitExternalSemaphoresAsync", "cudaWaitExternalSemaphoresAsync"))]
    pub fn wait_external(&self, semaphore: &ExternalSemaphore, value: u64) -> Result<()> {
        let op = "cuWaitExternalSemaphoresAsync";
        let core = self.core();
        let (raw, stream, _entered) = semaphore.bind(op, core)?;
        let mut wait = cuda_sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::default();
        wait.params.fence.value = value;
        // SAFETY: the call reads one handle and one description, both locals that outlive it; the
        // semaphore stays until the mark that is made of this has completed.
        let call = |stream| unsafe { cu::cuWaitExternalSemaphoresAsync(&raw, &wait, 1, stream) };
        stream.late(|| stream.submit(op, &mut [semaphore.touch()], Default::default, call))?.1
    }
}

impl Release for ImportedSemaphore {
    const RESOURCE: Resource = Resource::ExternalSemaphore;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    /// "Any outstanding signals or waits must have completed".
    fn release(&mut self) -> Result<(), Failed> {
        self.uses.last_uses(&WHOLE).wait_host()?;
        self.context.release("cuDestroyExternalSemaphore", || {
            // SAFETY: the owner is being closed or dropped, so no code uses the handle after this
            // call, and no signal or wait is queued; its context is current.
            unsafe { cu::cuDestroyExternalSemaphore(self.raw.0) }
        })
    }
}

debug_by! {
    [] ExternalSemaphore: |it| "ExternalSemaphore" {
        raw: it.as_raw(), device: it.device()
    }
}
