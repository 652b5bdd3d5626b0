//! Green contexts: a part of a device's multiprocessors, used like a context of its own.

use std::ptr;

use cuda_sys::{CUdevResource, symbol as cu};

use crate::context::{Context, ContextKind};
use crate::device::Device;
use crate::error::{Error, Result, asked, check};
use crate::process::{Failed, Handle, driver, drop_hook, released};
use crate::types::Resource;
use crate::util::debug_by;

/// A green context's own handle, beside the `CUcontext` that is used for everything else.
pub(crate) type RawGreenContext = Handle<cuda_sys::CUgreenCtx>;

/// `cuGreenCtxStreamCreate` of a non-blocking stream; needs no current context.
pub(crate) fn create_stream(
    green: RawGreenContext,
    stream: &mut cuda_sys::CUstream,
    priority: i32,
) -> cuda_sys::CUresult {
    let flags = cuda_sys::CU_STREAM_NON_BLOCKING.0;
    // SAFETY: the caller holds the context; the call writes one handle, to an exclusive borrow.
    unsafe { cu::cuGreenCtxStreamCreate(stream, green.0, flags, priority) }
}

/// `cuGreenCtxDestroy`, after the context's last reference is gone.
pub(super) fn destroy(green: RawGreenContext) -> Result<(), Failed> {
    // SAFETY: no code uses the context any more; no call of this crate's on it is in progress.
    released("cuGreenCtxDestroy", unsafe { cu::cuGreenCtxDestroy(green.0) })
}

/// Multiprocessors of a device, to be divided among green contexts. From CUDA 12.4 on.
///
/// ```no_run
/// use cuda_core::{Context, Device};
///
/// let split = Device::get(0)?.sm_resource()?.split(16, 1)?;
/// let (urgent, rest) = (&split.groups[0], &split.remaining);
/// let urgent = Context::new_green(&[urgent])?;
/// let stream = urgent.create_stream()?; // runs on 16 multiprocessors, whatever others do
/// println!("{} are left for everything else", rest.count());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SmResource {
    // INVARIANT: as the driver filled it in, of the kind CU_DEV_RESOURCE_TYPE_SM.
    raw: CUdevResource,
    device: Device,
    /// Keeps the context that the multiprocessors were queried from: the description may refer to the
    /// context's data.
    _of: Option<Context>,
}

// SAFETY: a description that the driver copies; its pointers refer to other descriptions of the
// driver's and are not dereferenced here. Contexts are `Send` and `Sync`.
unsafe impl Send for SmResource {}
// SAFETY: a shared reference can only copy the description.
unsafe impl Sync for SmResource {}

/// The result of [`SmResource::split`]; from CUDA 12.4 on.
///
/// ```no_run
/// use cuda_core::{Context, Device};
///
/// let split = Device::get(0)?.sm_resource()?.split(16, 2)?; // two groups of 16
/// let contexts: Result<Vec<_>, _> =
///     split.groups.iter().map(|group| Context::new_green(&[group])).collect();
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SmSplit {
    /// Groups of as many multiprocessors as requested, rounded up to what the device supports.
    pub groups: Vec<SmResource>,
    /// The multiprocessors that are left; may be none.
    pub remaining: SmResource,
}

/// # Multiprocessors for green contexts
impl Device {
    /// All multiprocessors of the device: `cuDeviceGetDevResource`, of drivers from CUDA 12.4
    /// on. Creates no context.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuDeviceGetDevResource"))]
    pub fn sm_resource(self) -> Result<SmResource> {
        driver::ensure()?;
        let (to, kind) = (CUdevResource::default(), cuda_sys::CU_DEV_RESOURCE_TYPE_SM);
        // SAFETY: the driver gave the device's handle; the call writes one description, to an
        // exclusive borrow.
        let raw = asked("cuDeviceGetDevResource", to, |raw| unsafe {
            cu::cuDeviceGetDevResource(self.as_raw(), raw, kind)
        })?;
        Ok(SmResource { raw, device: self, _of: None })
    }
}

impl SmResource {
    /// The number of multiprocessors.
    pub fn count(&self) -> u32 {
        // SAFETY: the driver filled in this member, by the invariant; any bits are a number.
        unsafe { self.raw.__bindgen_anon_1.sm }.smCount
    }

    /// The device that the multiprocessors belong to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Divides the multiprocessors into at most `groups` groups of at least `count` each:
    /// `cuDevSmResourceSplitByCount`. There may be fewer groups than requested.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no groups; the driver's: `INVALID_RESOURCE_CONFIGURATION` if there are too
    /// few multiprocessors.
    #[doc(alias("cuDevSmResourceSplitByCount"))]
    pub fn split(&self, count: u32, groups: u32) -> Result<SmSplit> {
        driver::ensure()?;
        let op = "cuDevSmResourceSplitByCount";
        Error::unless(groups > 0, op, "no groups were asked for")?;
        // There cannot be more groups than multiprocessors.
        let mut found = groups.min(self.count());
        let mut raw = vec![CUdevResource::default(); found as usize];
        let mut remaining = CUdevResource::default();
        // SAFETY: room for `found` groups and one remainder; the input is the driver's own, and the
        // context that it is from, if any, is kept.
        check(op, unsafe {
            cu::cuDevSmResourceSplitByCount(
                raw.as_mut_ptr(),
                &mut found,
                &self.raw,
                &mut remaining,
                0,
                count,
            )
        })?;
        raw.truncate(found as usize);
        let resource = |raw| SmResource { raw, ..self.clone() };
        Ok(SmSplit {
            groups: raw.into_iter().map(resource).collect(),
            remaining: resource(remaining),
        })
    }
}

debug_by! { [] SmResource: |it| "SmResource({} of {:?})", it.count(), it.device }

/// # Green contexts
impl Context {
    /// Returns the multiprocessors that this context's work runs on: `cuCtxGetDevResource`, or for a
    /// [green](Context::new_green) context `cuGreenCtxGetDevResource`, of drivers from CUDA 12.4 on.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// use cuda_core::{Context, Device};
    ///
    /// let split = Device::get(0)?.sm_resource()?.split(16, 1)?;
    /// let green = Context::new_green(&[&split.groups[0]])?;
    /// assert_eq!(green.sm_resource()?.count(), split.groups[0].count());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxGetDevResource", "cuGreenCtxGetDevResource"))]
    pub fn sm_resource(&self) -> Result<SmResource> {
        let of = self.live()?.0;
        let (to, kind) = (CUdevResource::default(), cuda_sys::CU_DEV_RESOURCE_TYPE_SM);
        let raw = match self.green() {
            // SAFETY: `self` keeps the green context alive; the call writes one description, to an
            // exclusive borrow.
            Some(green) => asked("cuGreenCtxGetDevResource", to, |raw| unsafe {
                cu::cuGreenCtxGetDevResource(green.0, raw, kind)
            }),
            // SAFETY: `self` keeps the context alive; the call writes one description, to an
            // exclusive borrow.
            None => asked("cuCtxGetDevResource", to, |raw| unsafe {
                cu::cuCtxGetDevResource(of, raw, kind)
            }),
        }?;
        Ok(SmResource { raw, device: self.device(), _of: Some(self.clone()) })
    }

    /// Creates a green context that has these multiprocessors of a device:
    /// `cuDevResourceGenerateDesc`, `cuGreenCtxCreate`, `cuCtxFromGreenCtx`, of drivers from CUDA
    /// 12.4 on. The thread's current context stays unchanged.
    ///
    /// Streams created in the context run their kernels only on its multiprocessors; otherwise it behaves
    /// like any other context. It is destroyed with its last reference.
    ///
    /// # Errors
    /// [`Error::Invalid`] for multiprocessors of several devices, and
    /// for none at all; the driver's.
    #[doc(alias("cuDevResourceGenerateDesc", "cuGreenCtxCreate", "cuCtxFromGreenCtx"))]
    #[doc(alias("cudaGreenCtxCreate"))]
    pub fn new_green(resources: &[&SmResource]) -> Result<Context> {
        driver::ensure()?;
        let op = "cuGreenCtxCreate";
        let Some(first) = resources.first() else {
            return Err(Error::invalid(op, "no multiprocessors were given"));
        };
        let device = first.device;
        if let Some(other) = resources.iter().find(|other| other.device != device) {
            let (first, other) = (device.ordinal(), other.device.ordinal());
            let why = format!("multiprocessors of devices {first} and {other} do not go together");
            return Err(Error::invalid(op, why));
        }
        // A green context shares the primary context's memory, so the primary context must outlive it.
        device.primary()?;
        let mut raw: Vec<CUdevResource> = resources.iter().map(|one| one.raw).collect();
        // SAFETY: the call reads as many resources as counted, all of the driver's making, and
        // writes one handle, to an exclusive borrow.
        let description = asked("cuDevResourceGenerateDesc", ptr::null_mut(), |made| unsafe {
            cu::cuDevResourceGenerateDesc(made, raw.as_mut_ptr(), raw.len() as u32)
        })?;
        let flags = cuda_sys::CU_GREEN_CTX_DEFAULT_STREAM.0;
        // SAFETY: the description was just made for this device; the call writes one handle, to an
        // exclusive borrow.
        let green = asked(op, ptr::null_mut(), |green| unsafe {
            cu::cuGreenCtxCreate(green, description, device.as_raw(), flags)
        })?;
        let green = Handle(green);
        // SAFETY: the green context was just made; the call writes one handle, to an exclusive
        // borrow.
        let context = asked("cuCtxFromGreenCtx", ptr::null_mut(), |context| unsafe {
            cu::cuCtxFromGreenCtx(context, green.0)
        });
        // Nothing refers to the green context yet.
        let undo = |_: &Error| {
            if let Err(why) = destroy(green) {
                drop_hook::report(Resource::Context, green.number(), 0, Some(why.into()));
            }
        };
        let context = context.inspect_err(undo)?;
        Ok(Context::register(context, device, ContextKind::Green(green)))
    }
}
