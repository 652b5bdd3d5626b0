//! Several GPUs as one: a stream on each, and operations on all of them.

mod contexts;
mod exchange;
mod host;
mod peers;
mod reduce;
mod round;
mod views;
mod whole;

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, FROM_STREAMS, Result, counted};
use crate::memory::DeviceBuffer;
use crate::nccl::Ranks;
use crate::stream::Stream;
use crate::types::Pod;

use exchange::ranges;
pub use whole::{Whole, WholeMut};

/// GPUs that work together: one stream on each, in an order that gives each member its *rank*.
///
/// Use `group.streams()[rank]` for work on one device. Operations on all devices at once are here:
///
/// | from | to | |
/// |---|---|---|
/// | the host | every device the same | [`upload_all`](Self::upload_all) |
/// | the host, or one device | each device a part | [`scatter`](Self::scatter) |
/// | each device a part | the host, or one device | [`gather`](Self::gather) |
/// | one device | every device the same | [`broadcast_in_place`](Self::broadcast_in_place) |
/// | each device | the next one | [`rotate`](Self::rotate) |
/// | each device | each device another part | [`all_to_all`](Self::all_to_all), [`exchange`](Self::exchange) |
/// | each device | every device the sum | [`all_reduce`](Self::all_reduce), by [NCCL](crate::nccl) |
/// | each device | each device a part of the sum | [`reduce_scatter`](Self::reduce_scatter), by NCCL |
/// | each device a part | every device all | [`all_gather`](Self::all_gather), by NCCL |
///
/// Pass one buffer for each member, in the order of the ranks: a `&mut Vec` of them, or an iterator
/// of views. Copies are ordered by the buffers, like all others, with the work of any stream that
/// used them before or uses them next. None blocks the calling thread, except copies to a borrowed
/// slice, and copies from one as [`Stream::upload`] describes. Copies between devices run on
/// streams of the group, one for everything that a member sends, concurrently with the work of the
/// members' streams. So a device sends and receives at the same time.
///
/// A group of one device works, too. A device may be a member several times: each membership has
/// its own streams. Several threads may use a group at the same time.
///
/// # Errors
/// Lengths, the number of buffers and their devices are checked before any driver call. An error
/// that concerns one device is [`Error::OnDevice`]. After the driver fails, some of the copies have
/// been enqueued and others have not; every buffer knows which of them use it, as after
/// any other copy.
///
/// ```no_run
/// use cuda_core::DeviceGroup;
///
/// let group = DeviceGroup::all()?;
/// group.enable_all_peers()?; // copies between devices take the direct way
/// let weights = vec![0.5f32; 1 << 20];
/// let mut copies = group.alloc::<f32>(weights.len())?;
/// group.upload_all(&weights, &mut copies)?; // one pass over `weights`
/// for (stream, copy) in group.streams().iter().zip(&mut copies) {
///     stream.fill(copy, 1.0f32)?; // stands for a kernel
/// }
/// let mut next = group.alloc::<f32>(weights.len())?;
/// group.rotate(&copies, &mut next, 1)?; // each to its neighbour, all at the same time
/// group.synchronize()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct DeviceGroup {
    // INVARIANT: not empty.
    streams: Box<[Stream]>,
    /// One stream per member, for all copies that it sends; the member's own stream, if that is
    /// captured. Measured on H200s: several streams per member, to send to several others at once,
    /// are no faster, and copying on the receiver's stream is slower.
    lanes: Box<[Stream]>,
    /// The communicator of the members, made at its first use.
    ranks: Mutex<Option<Arc<Ranks>>>,
}

/// # The group
impl DeviceGroup {
    /// Makes a group of all devices, in the order of their ordinals.
    ///
    /// # Errors
    /// As [`DeviceGroup::new`].
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// for (rank, device) in group.devices().enumerate() {
    ///     println!("{rank}: {}", device.name()?);
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn all() -> Result<Self> {
        Self::new(Device::all()?)
    }

    /// Makes a group of these devices, with a new non-blocking stream on each. Their contexts are
    /// retained at the same time: [`Device::contexts`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for no device; the errors of [`Device::contexts`]; the driver's.
    ///
    /// ```no_run
    /// use cuda_core::{Device, DeviceGroup};
    ///
    /// let pair = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
    /// assert_eq!(pair.len(), 2);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Result<Self> {
        let contexts = Device::contexts(devices)?;
        let streams: Result<Vec<Stream>> = contexts.iter().map(create_stream).collect();
        Self::from_streams(streams?)
    }

    /// Makes a group of these streams, which need not be in primary contexts and may also be used
    /// outside the group. If they are streams of [`Graph::capture`](crate::Graph::capture), the
    /// group's operations are captured. Reductions make a communicator for each such group: to
    /// capture reductions, make [`Ranks`] once, and use their operations.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no stream; [`Error::NotCapturable`] if some of them are captured and
    /// others not, or in another capture; the driver's.
    ///
    /// ```no_run
    /// use cuda_core::{Device, DeviceGroup};
    ///
    /// // Streams that other work is on already: the group's copies come in between.
    /// let streams: Result<Vec<_>, _> = Device::all()?.map(Device::create_stream).collect();
    /// let group = DeviceGroup::from_streams(streams?)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn from_streams(streams: impl IntoIterator<Item = Stream>) -> Result<Self> {
        let streams: Box<[Stream]> = streams.into_iter().collect();
        let why = "a group needs at least one stream";
        Error::unless(!streams.is_empty(), FROM_STREAMS, why)?;
        let first = streams[0].core().timeline();
        let with_first = |stream: &Stream| stream.core().timeline().is_captured_with(first);
        if !streams.iter().all(with_first) {
            return Err(Error::NotCapturable { op: FROM_STREAMS });
        }
        let lane = |stream: &Stream| match first.recording() {
            // A different stream would not be part of the capture.
            Some(_) => Ok(stream.clone()),
            None => create_stream(stream.context()),
        };
        let lanes: Result<_> = streams.iter().map(lane).collect();
        Ok(Self { lanes: lanes?, streams, ranks: Mutex::default() })
    }

    /// The number of members; at least one.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::new(cuda_core::Device::all()?)?;
    /// assert_eq!(group.len(), cuda_core::Device::count()? as usize);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// The members' streams, by rank.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut parts = group.alloc::<u32>(1000)?;
    /// for (rank, (stream, part)) in group.streams().iter().zip(&mut parts).enumerate() {
    ///     stream.fill(part, rank as u32)?; // or a kernel
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The members' devices, by rank.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = Device> {
        self.streams.iter().map(Stream::device)
    }

    /// The contexts of the members' streams, by rank.
    ///
    /// ```no_run
    /// use cuda_core::{DeviceGroup, Module};
    ///
    /// # let ptx = String::new();
    /// let group = DeviceGroup::all()?;
    /// let modules: Result<Vec<_>, _> =
    ///     group.contexts().map(|context| Module::from_ptx(context, &ptx)).collect();
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &Context> {
        self.streams.iter().map(Stream::context)
    }

    /// Allocates a buffer of `len` elements of unspecified value on each device: [`Stream::alloc`].
    ///
    /// # Errors
    /// As [`Stream::alloc`], in [`Error::OnDevice`].
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let copies = group.alloc::<f32>(1 << 20)?; // one on each device
    /// assert!(copies.iter().map(|copy| copy.device()).eq(group.devices()));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaMalloc", "cuMemAlloc"))]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Vec<DeviceBuffer<T>>> {
        self.each(|stream| stream.alloc(len))
    }

    /// Allocates a buffer of `len` zeroed elements on each device: [`Stream::alloc_zeroed`].
    ///
    /// # Errors
    /// As [`Stream::alloc_zeroed`], in [`Error::OnDevice`].
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let counters = group.alloc_zeroed::<u32>(16)?; // sixteen on each device
    /// assert_eq!(group.streams()[0].download_vec(&counters[0])?, [0; 16]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaMalloc", "cuMemAlloc"))]
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Vec<DeviceBuffer<T>>> {
        self.each(|stream| stream.alloc_zeroed(len))
    }

    /// Allocates a buffer on each device. Together they hold `len` elements, as evenly as possible:
    /// the first ones have one element more. For [`scatter`](Self::scatter) and
    /// [`gather`](Self::gather).
    ///
    /// # Errors
    /// As [`Stream::alloc`], in [`Error::OnDevice`].
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let shares = group.alloc_shares::<f32>(1001)?;
    /// assert_eq!(shares.iter().map(|share| share.len()).sum::<usize>(), 1001);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn alloc_shares<T: Pod>(&self, len: usize) -> Result<Vec<DeviceBuffer<T>>> {
        let mut shares = ranges(len, self.len());
        self.each(|stream| stream.alloc(shares.next().map_or(0, |share| share.len())))
    }

    /// Blocks the thread until all work on the members' streams, and all copies between devices by
    /// this group, have completed: `cuStreamSynchronize` for each stream.
    ///
    /// # Errors
    /// The driver's first error, as [`Error::OnDevice`], after waiting for all streams; this
    /// includes errors of earlier asynchronous work.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut copies = group.alloc::<f32>(1 << 20)?;
    /// for (stream, copy) in group.streams().iter().zip(&mut copies) {
    ///     stream.fill(copy, 1.0)?;
    /// }
    /// group.synchronize()?; // all of them
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamSynchronize", "cudaStreamSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        let wait = |stream: &Stream| {
            let waited = stream.synchronize();
            waited.map_err(|error| error.on(stream.device()))
        };
        let all = self.streams.iter().chain(&self.lanes);
        all.map(wait).fold(Ok(()), Result::and)
    }

    fn each<R>(&self, mut make: impl FnMut(&Stream) -> Result<R>) -> Result<Vec<R>> {
        let make = |stream: &Stream| make(stream).map_err(|error| error.on(stream.device()));
        self.streams.iter().map(make).collect()
    }

    /// Refuses a number of things that differs from the number of members.
    fn one_each(&self, op: &'static str, given: usize) -> Result<()> {
        let members = self.len();
        let why = || {
            let given = counted(given, "buffer or slice", "buffers or slices");
            format!("{given} given for a group of {}", counted(members, "device", "devices"))
        };
        Error::unless_with(given == members, op, why)
    }

    /// Refuses memory of another device than the member's.
    fn on_member(&self, op: &'static str, rank: usize, memory: Device) -> Result<()> {
        self.streams[rank].device().require_same(op, memory)
    }
}

fn create_stream(context: &Context) -> Result<Stream> {
    context.create_stream().map_err(|error| error.on(context.device()))
}

impl fmt::Debug for DeviceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.devices()).finish()
    }
}
