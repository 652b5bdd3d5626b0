//! Contexts: one object for each context of the driver. Everything that saves the handle keeps the object
//! alive.

use std::any::Any;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::CUcontext;

use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::process::{Contained, ForeignOwner, Handle, driver};
use crate::types::Resource;
use crate::util::{Pocket, compare_by, debug_by, lock};

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod switch;

pub(crate) mod primary;

mod create;

pub(crate) mod settings;

mod call;
pub(crate) mod context_local;
pub(crate) mod current;
pub(crate) mod destroy;
pub(crate) mod green;
pub(crate) mod guard;
pub(crate) mod kept;
pub(crate) mod peer;
pub(crate) mod profiler;
mod thread;

pub(crate) use destroy::leave_behind;
pub(crate) use guard::{Entered, Guard};
pub(crate) use kept::forget_reached;
pub(crate) use peer::{Changes, Confined, Crossing, Exposed, Moment, PeerAccess, crossing};

/// A context of the driver.
///
/// There is one object for each context: however it is reached, the values are equal and share all
/// bookkeeping. A clone is a reference. The primary context of a device lives until the process ends; a
/// created one lives until its last reference, stream, buffer, event and guard are gone.
///
/// No method changes which context is current, unless its documentation says so.
///
/// # Errors
/// Functions whose documentation names no errors return the driver's. Inside a host function all return
/// [`Error::InCallback`].
///
/// ```no_run
/// use cuda_core::{Context, Device};
///
/// let context = Device::get(0)?.context()?; // the primary one, which other libraries use too
/// let stream = context.create_stream()?; // works whatever is current
/// assert!(context.is_primary() && stream.context() == &context);
/// assert_eq!(Context::current()?, None); // and leaves it so
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias("CudaContext", "CUcontext"))]
pub struct Context(Ref);

/// A primary context lives as long as the process and is not counted, so that threads that share it
/// do not contend for a counter.
#[derive(Clone)]
enum Ref {
    Primary(&'static ContextInner),
    Counted(Arc<ContextInner>),
}

pub(crate) struct ContextInner {
    // INVARIANT: a live context while this value exists: retained (primary), owned (created), or kept alive
    // by the owner stored beside it (foreign). Null if it was given up.
    raw: RawContext,
    device: Device,
    kind: ContextKind,
    streams: <Streams as Pocket>::Content,
    /// The context is never destroyed; see [`Context::leave_behind`].
    left_behind: AtomicBool,
    identity: Arc<()>,
}

/// Defines `context` and `device` of a type, inside its `impl`.
///
/// ```text
/// of_context! { "The context that it was created in.": |it| &it.context }
/// ```
macro_rules! of_context {
    ($doc:literal: |$it:ident| $context:expr) => {
        #[doc = $doc]
        pub fn context(&self) -> &$crate::context::Context {
            let $it = self;
            $context
        }

        /// The device of that context.
        pub fn device(&self) -> $crate::device::Device {
            self.context().device()
        }
    };
}

pub(crate) use of_context;

/// Names the field for what this crate knows of a context's streams.
pub(crate) enum Streams {}

enum ContextKind {
    Primary,
    Created,
    Green(green::RawGreenContext),
    Foreign(ForeignOwner),
    GivenUp,
}

/// A context's handle.
pub(crate) type RawContext = Handle<CUcontext>;

/// All contexts other than primary ones, by handle.
static REGISTRY: Mutex<Vec<(RawContext, Weak<ContextInner>)>> = Mutex::new(Vec::new());

/// Returns the object for `raw`, if there is one.
pub(crate) fn known(raw: RawContext) -> Option<Context> {
    if let Some(primary) = primary::retained().find(|primary| primary.raw() == raw) {
        return Some(primary.clone());
    }
    find(&lock(&REGISTRY), raw)
}

/// Returns the object for `raw`; for a context that is not known, its device.
fn found(raw: RawContext) -> Result<std::result::Result<Context, Device>> {
    driver::ensure()?;
    if let Some(context) = known(raw) {
        return Ok(Ok(context));
    }
    let device = device_of(raw)?;
    if let Some(primary) = active_primary(device)?.filter(|primary| primary.raw() == raw) {
        return Ok(Ok(primary.clone()));
    }
    device.default_pool()?;
    Ok(Err(device))
}

/// Returns the object for `raw`, if that is a known context other than a primary one.
fn find(registry: &[(RawContext, Weak<ContextInner>)], raw: RawContext) -> Option<Context> {
    let (_, weak) = registry.iter().find(|(known, _)| *known == raw)?;
    weak.upgrade().map(|inner| Context(Ref::Counted(inner)))
}

/// Iterates over all contexts that this crate has an object for. Only the context that the caller has got is
/// kept alive, so the program can close the others while the caller waits for that one.
pub(crate) fn all_known() -> impl Iterator<Item = Context> {
    let counted: Vec<_> = lock(&REGISTRY).iter().map(|(_, weak)| weak.clone()).collect();
    let counted = counted.into_iter().filter_map(|weak| weak.upgrade());
    primary::retained().cloned().chain(counted.map(|inner| Context(Ref::Counted(inner))))
}

/// # The context itself
impl Context {
    /// Creates a reference-counted context, and registers its handle.
    fn register(raw: CUcontext, device: Device, kind: ContextKind) -> Self {
        let mut registry = lock(&REGISTRY);
        if let ContextKind::Foreign(_) = kind {
            // Another thread may have registered the same foreign context meanwhile.
            if let Some(known) = find(&registry, Handle(raw)) {
                // Unlocks before the return, which drops the given owner.
                drop(registry);
                return known;
            }
        }
        let inner = Arc::new(ContextInner::new(raw, device, kind));
        registry.retain(|(raw, weak)| *raw != inner.raw && weak.strong_count() > 0);
        registry.push((inner.raw, Arc::downgrade(&inner)));
        drop(registry);
        Self(Ref::Counted(inner))
    }

    /// Creates an object for a foreign context, with the owner that keeps it alive.
    ///
    /// If this crate knows the context already, the known object is returned and `owner` is dropped. If other
    /// code needs the owner too, pass a clone of an [`Arc`]. There is an example at
    /// [`UnknownContext`](crate::UnknownContext).
    ///
    /// # Errors
    /// The driver's, when asked for the context's device. The error has the owner.
    ///
    /// # Safety
    /// `raw` is a context of this process, and stays one until `owner` is dropped.
    pub unsafe fn from_raw<O: Any + Send + Sync>(
        raw: CUcontext,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        let (found, owner) = Rejected::unless(found(Handle(raw)), owner)?;
        let owner: ForeignOwner = Contained::new(Box::new(owner));
        Ok(match found {
            Ok(known) => known,
            Err(device) => Self::register(raw, device, ContextKind::Foreign(owner)),
        })
    }

    /// [`Context::current`], but also accepts a context that other code created, without an owner
    /// that keeps it alive.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// A context that this crate does not know must outlive the returned value, its clones, everything
    /// created in the context, and every guard that saved it as current.
    ///
    /// ```no_run
    /// use cuda_core::Context;
    ///
    /// // SAFETY: the program that called this library keeps its context until the library is done.
    /// if let Some(context) = unsafe { Context::attach_current() }? {
    ///     let stream = context.create_stream()?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn attach_current() -> Result<Option<Self>> {
        match Self::current() {
            Err(Error::UnknownContext) => {}
            known => return known,
        }
        let raw = current::get()?;
        // SAFETY: it is current on this thread, and the caller promises how long it lives.
        Ok(Some(unsafe { Self::from_raw(raw.0, Arc::new(())) }?))
    }

    /// The device that the context is on.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner().device
    }

    /// The driver's handle, valid while this value or a clone of it lives; null for a context that was
    /// [given up](Error::GivenUp).
    #[inline]
    pub fn as_raw(&self) -> CUcontext {
        self.inner().raw.0
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawContext {
        self.inner().raw
    }

    /// Returns the handle, or an error if the context was given up.
    #[inline]
    pub(crate) fn live(&self) -> Result<RawContext> {
        driver::ensure()?;
        let raw = self.raw();
        if raw.0.is_null() { Err(Error::GivenUp { what: Resource::Context }) } else { Ok(raw) }
    }

    #[inline]
    pub(crate) fn inner(&self) -> &ContextInner {
        match &self.0 {
            Ref::Primary(inner) => inner,
            Ref::Counted(inner) => inner,
        }
    }

    /// Returns an object whose address identifies the context, without keeping the context alive. No other
    /// context's object gets that address while a [`Weak`] of this one exists.
    pub(crate) fn identity(&self) -> &Arc<()> {
        &self.inner().identity
    }

    #[inline]
    pub(crate) fn timelines(&self) -> &<Streams as Pocket>::Content {
        &self.inner().streams
    }

    /// Returns the green context's handle, if this is one.
    pub(crate) fn green(&self) -> Option<green::RawGreenContext> {
        match self.inner().kind {
            ContextKind::Green(green) => Some(green),
            _ => None,
        }
    }

    /// Returns the context whose address space this one uses: for a green context, the primary one.
    #[inline]
    pub(crate) fn address_space(&self) -> RawContext {
        let primary = self.green().and_then(|_| self.device().retained_primary());
        primary.map_or(self.raw(), Context::raw)
    }

    /// Whether another library created the context, whatever its kind.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.inner().kind, ContextKind::Foreign(_))
    }

    /// Whether this is its device's primary context, which lives as long as the process.
    #[inline]
    pub fn is_primary(&self) -> bool {
        matches!(self.0, Ref::Primary(_))
    }

    /// [`Context::enter`] around calls of this crate only.
    #[inline]
    pub(crate) fn enter_briefly(&self) -> Result<Entered> {
        Entered::enter(self)
    }

    /// [`Context::enter_briefly`] around one driver call. Enters nothing if the context is current already.
    #[inline]
    pub(crate) fn enter_unless_current(&self) -> Result<Option<Entered>> {
        let raw = self.live()?;
        if current::get()? == raw { Ok(None) } else { self.enter_briefly().map(Some) }
    }
}

/// Returns the device of a context, which need not be current.
fn device_of(raw: RawContext) -> Result<Device> {
    let before = current::get()?;
    if before == raw {
        return current::device();
    }
    current::set_or(before, raw, drop)?;
    let device = current::device();
    current::restore(before)?;
    device
}

/// Returns the device's primary context, if it has been created. Creates none.
fn active_primary(device: Device) -> Result<Option<&'static Context>> {
    let is_active = device.retained_primary().is_some() || device.primary_state()?.is_active;
    is_active.then(|| device.primary()).transpose()
}

impl ContextInner {
    fn new(raw: CUcontext, device: Device, kind: ContextKind) -> Self {
        Self {
            raw: Handle(raw),
            device,
            kind,
            streams: Default::default(),
            left_behind: AtomicBool::new(false),
            identity: Arc::default(),
        }
    }
}

compare_by! { Context: |it| ptr::from_ref(it.inner()) }

debug_by! {
    [] Context: |it| "Context({}, {:?}, {:p})",
        match it.inner().kind {
            ContextKind::Primary => "primary",
            ContextKind::Created => "created",
            ContextKind::Green(_) => "green",
            ContextKind::Foreign(_) => "foreign",
            ContextKind::GivenUp => "given up",
        },
        it.device(),
        it.as_raw()
}
