//! Values in memory that streams write and wait for.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::DeviceBacking;
use crate::context::Context;
use crate::device::Device;
use crate::device::limits::stream_values;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView};
use crate::signal::SignalWord;
use crate::stream::{Stream, StreamKind};
use crate::timeline::Bound;
use crate::timeline::ledger::Touch;
use crate::timeline::recording::{GraphTraits, Notes};
use crate::types::Pod;

/// A value that a stream can write and wait for: `u32`, and `u64` if the device supports it.
/// Sealed.
///
/// ```no_run
/// use cuda_core::{Context, Device, Result, Signal, StreamValue};
///
/// fn signals<T: StreamValue>(context: &Context, zero: T) -> Result<[Signal<T>; 2]> {
///     Ok([Signal::new(context, zero)?, Signal::new(context, zero)?])
/// }
/// let context = Device::get(0)?.context()?;
/// let narrow = signals(&context, 0u32)?;
/// let wide = signals(&context, 0u64)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub trait StreamValue: Pod + sealed::Value {}

impl StreamValue for u32 {}
impl StreamValue for u64 {}

/// The condition that a stream waits for the value in memory to meet: the flags of
/// `cuStreamWaitValue`.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Signal, WaitValue};
///
/// let signal = Signal::new(stream.context(), 0u32)?;
/// stream.wait_signal(&signal, WaitValue::Geq(3))?;
/// stream.launch_host_func(|| println!("three or more"))?;
/// signal.set(4); // lets it go on
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitValue<T> {
    /// `CU_STREAM_WAIT_VALUE_GEQ`: the value in memory has reached this one. The comparison is cyclic: the
    /// difference, taken as a signed number, is not negative.
    Geq(T),
    /// `CU_STREAM_WAIT_VALUE_EQ`: the value in memory equals this one.
    Eq(T),
    /// `CU_STREAM_WAIT_VALUE_AND`: the value in memory has one of these bits.
    And(T),
    /// `CU_STREAM_WAIT_VALUE_NOR`: the value in memory lacks a bit that this value lacks, too. Not every
    /// device supports this condition.
    Nor(T),
}

pub(crate) mod sealed {
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use cuda_sys::{CUdeviceptr, CUresult, CUstream, symbol as cu};

    pub trait Value: Copy + Eq {
        const ZERO: Self;
        const ONES: Self;
        /// The names of the calls that write and wait.
        const WRITE: &'static str;
        const WAIT: &'static str;
        /// Reads host memory that a device may write meanwhile, with `Acquire` ordering.
        ///
        /// # Safety
        /// `at` is valid and aligned, and all other accesses to it meanwhile are atomic.
        unsafe fn load(at: *mut u8) -> Self;

        /// Writes the value, and makes what this thread did before visible to threads that read the value.
        ///
        /// # Safety
        /// As for [`Value::load`].
        unsafe fn store(self, at: *mut u8);

        /// # Safety
        /// The stream is live, and its context is current if the stream needs that. `address` is that of a
        /// value of this type, aligned to its size, that the stream's device reaches until the write is done.
        unsafe fn write(self, stream: CUstream, address: CUdeviceptr) -> CUresult;

        /// # Safety
        /// As for [`Value::write`], until the wait has ended.
        unsafe fn wait(self, stream: CUstream, address: CUdeviceptr, condition: u32) -> CUresult;
    }

    macro_rules! value {
        ($($type:ty, $atomic:ty, $write:ident, $wait:ident, $bits:literal;)*) => {$(
            impl Value for $type {
                const ZERO: Self = 0;
                const ONES: Self = !0;
                const WRITE: &'static str = concat!("cuStreamWriteValue", $bits);
                const WAIT: &'static str = concat!("cuStreamWaitValue", $bits);

                unsafe fn load(at: *mut u8) -> Self {
                    // SAFETY: aligned, and valid for longer than the reference, which ends with
                    // this call; other accesses meanwhile are atomic: the caller's promise, which
                    // is what `from_ptr` asks for.
                    let value = unsafe { <$atomic>::from_ptr(at.cast()) };
                    value.load(std::sync::atomic::Ordering::Acquire)
                }

                unsafe fn store(self, at: *mut u8) {
                    // SAFETY: aligned, and valid for longer than the reference, which ends with
                    // this call; other accesses meanwhile are atomic: the caller's promise, which
                    // is what `from_ptr` asks for.
                    let value = unsafe { <$atomic>::from_ptr(at.cast()) };
                    value.store(self, std::sync::atomic::Ordering::Release);
                }

                unsafe fn write(self, stream: CUstream, address: CUdeviceptr) -> CUresult {
                    let flags = cuda_sys::CU_STREAM_WRITE_VALUE_DEFAULT.0;
                    // SAFETY: the stream is live, and `address` a value of this size, aligned to it,
                    // until the write is done: the caller's promise.
                    unsafe { cu::$write(stream, address, self, flags) }
                }

                unsafe fn wait(
                    self,
                    stream: CUstream,
                    address: CUdeviceptr,
                    condition: u32,
                ) -> CUresult {
                    // SAFETY: the stream is live, and `address` a value of this size, aligned to it, until
                    // the wait has ended: the caller's promise.
                    unsafe { cu::$wait(stream, address, self, condition) }
                }
            }
        )*};
    }

    value! {
        u32, AtomicU32, cuStreamWriteValue32_v2, cuStreamWaitValue32_v2, 32;
        u64, AtomicU64, cuStreamWriteValue64_v2, cuStreamWaitValue64_v2, 64;
    }
}

/// # Values in memory
impl<K: StreamKind> Stream<K> {
    /// Writes one element when everything enqueued so far has completed, and made its own writes
    /// visible: `cuStreamWriteValue32_v2` or `cuStreamWriteValue64_v2`.
    ///
    /// The write is ordered with the buffer's other users, like a [fill](Stream::fill). To notify
    /// other streams or the host, use a [`Signal`](crate::Signal). On a stream that is captured, each launch
    /// of the graph writes the element, in the order that [`Stream::write_signal`] describes.
    ///
    /// The memory must not be managed memory, which CUDA's reference excludes, nor come from a
    /// [pool of the driver's](crate::MemoryPool), which drivers refuse. Memory of [`Stream::alloc`] comes
    /// from such a pool if that is the [default allocator](crate::set_default_allocator).
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is exactly one element, and for memory that is managed or of the
    /// driver's pools; [`Error::WrongDevice`]; [`Error::WrongContext`]; [`Error::Unsupported`] for 64 bits on
    /// a device that does not support them; [`Error::NotCapturable`] in a body of a
    /// [`Condition`](crate::Condition); the driver's `INVALID_VALUE` for other memory that it refuses.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let stream = context.create_stream()?;
    /// let mut progress = context.alloc::<u32>(2)?;
    /// stream.fill(&mut progress, 0)?;
    /// stream.write_value(progress.slice_mut(1..)?, 7)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWriteValue32", "cuStreamWriteValue64"))]
    pub fn write_value<'b, T: StreamValue>(
        &self,
        destination: impl IntoView<DeviceSliceMut<'b, T>>,
        value: T,
    ) -> Result<()> {
        let mut destination = destination.into();
        let op = T::WRITE;
        one_element(op, destination.len())?;
        let core = self.core();
        core.device().require_same(op, destination.as_view().device())?;
        require_served(op, &destination.as_view(), core.context())?;
        let address = destination.as_raw();
        let stream = core.bind_work(op)?;
        // SAFETY: the element is on the stream's device, aligned to its size, and stays allocated
        // until the mark that is made of this write, or the last launch of a graph with it, has completed.
        unsafe { write(&stream, address, value, &mut [destination.write()], None) }
    }

    /// Makes work enqueued from now on wait until one element has a value:
    /// `cuStreamWaitValue32_v2` or `cuStreamWaitValue64_v2`, after a
    /// [checkpoint](Stream::checkpoint).
    ///
    /// This is for values that come from outside this crate: a running kernel, a network card,
    /// another process. The wait counts as a reader of the element, so later writers through this crate wait
    /// for it, and earlier ones have finished when it begins. For streams that notify each other, use a
    /// [`Signal`](crate::Signal).
    ///
    /// If the value is never written, the wait holds up the stream forever, and with it everything that waits
    /// for the stream, dropping the buffer included. CUDA does not see the dependency: if the wait and the
    /// work that would write the value share a hardware queue, CUDA may queue that work after the wait. On a
    /// stream that is captured, each launch of the graph waits, in the order that [`Stream::write_signal`]
    /// describes.
    ///
    /// # Errors
    /// Those of [`Stream::write_value`]; [`Error::Invalid`] for a condition that no value fulfils;
    /// [`Error::Unsupported`] for [`WaitValue::Nor`] on a device that does not support it.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::WaitValue;
    ///
    /// let mut arrived = context.alloc::<u32>(1)?;
    /// stream.fill(&mut arrived, 0)?;
    /// // … a network card gets the address and will write there …
    /// stream.wait_value(&arrived, WaitValue::Geq(1))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    pub fn wait_value<'a, T: StreamValue>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        until: WaitValue<T>,
    ) -> Result<()> {
        let source = source.into();
        let op = T::WAIT;
        one_element(op, source.len())?;
        until.check(op)?;
        let core = self.core();
        core.device().require_same(op, source.device())?;
        require_served(op, &source, core.context())?;
        let stream = core.bind_work(op)?;
        // SAFETY: the element is on the stream's device, aligned to its size, and stays allocated
        // until the mark that is made of this wait, or the last launch of a graph with it, has completed.
        unsafe { wait(&stream, source.as_raw(), until, &mut [source.read()], None) }
    }
}

/// Refuses a view that does not have exactly one element.
fn one_element(op: &'static str, len: usize) -> Result<()> {
    Error::unless_with(len == 1, op, || format!("the view has {len} elements, and is to have one"))
}

/// Refuses memory of the driver's pools and of graphs, for which drivers return an `INVALID_VALUE` that
/// explains nothing; managed memory, which CUDA's reference excludes; and memory of a context other than the
/// stream's.
fn require_served<T: Pod>(
    op: &'static str,
    memory: &DeviceSlice<'_, T>,
    context: &Context,
) -> Result<()> {
    let backing = &memory.block().backing;
    let traits = backing.traits();
    let is_owned = matches!(backing, DeviceBacking::Owned { .. }) && !traits.freed_by_work;
    let is_served = backing.is_in_the_context() || is_owned && !traits.visible_to_the_host;
    let why = "CUDA does not do this in memory of the driver's pools, as that of an allocator is unless it says \
               otherwise, nor in a graph's or managed memory: use a `Signal`, or `Context::alloc`";
    Error::unless(is_served, op, why)?;
    backing.require_home_in(op, context)
}

/// The notes of an operation that all later ones depend on, whatever memory they use.
fn notes(mut traits: GraphTraits, kept: Option<&Arc<SignalWord>>) -> Notes {
    traits.add(GraphTraits::BARRIER);
    let owners = kept.map(|word| word.clone() as _).into_iter().collect();
    Notes { traits, owners, ..Notes::default() }
}

/// Enqueues the write of a value. In a capture, the graph keeps `kept`.
///
/// # Safety
/// `address` is that of a value of type `T`, aligned to its size, that the stream's device reaches until the
/// marks made of `touches` have completed; on a stream that is captured, until the last launch of the graph
/// has completed.
pub(super) unsafe fn write<T: StreamValue>(
    stream: &Bound<'_>,
    address: CUdeviceptr,
    value: T,
    touches: &mut [Touch<'_>],
    kept: Option<&Arc<SignalWord>>,
) -> Result<()> {
    require::<T>(stream.core().device(), None)?;
    // SAFETY: the caller's promise; a bound stream is live.
    let call = |stream| unsafe { value.write(stream, address) };
    stream.submit(T::WRITE, touches, || notes(GraphTraits::EVENT, kept), call).1
}

/// Enqueues the wait for a value, after a checkpoint.
///
/// # Safety
/// As for [`write()`].
pub(super) unsafe fn wait<T: StreamValue>(
    stream: &Bound<'_>,
    address: CUdeviceptr,
    until: WaitValue<T>,
    touches: &mut [Touch<'_>],
    kept: Option<&Arc<SignalWord>>,
) -> Result<()> {
    require(stream.core().device(), Some(until))?;
    let (condition, value) = match until {
        WaitValue::Geq(value) => (cuda_sys::CU_STREAM_WAIT_VALUE_GEQ, value),
        WaitValue::Eq(value) => (cuda_sys::CU_STREAM_WAIT_VALUE_EQ, value),
        WaitValue::And(value) => (cuda_sys::CU_STREAM_WAIT_VALUE_AND, value),
        WaitValue::Nor(value) => (cuda_sys::CU_STREAM_WAIT_VALUE_NOR, value),
    };
    // SAFETY: the caller's promise; a bound stream is live.
    let call = |stream| unsafe { value.wait(stream, address, condition.0) };
    // A captured wait holds up each launch of the graph, and the launch makes the checkpoint.
    let is_late = stream.timeline().recording().is_none();
    let notes = || notes(GraphTraits::MAY_TAKE_LONG, kept);
    let submit = || stream.submit(T::WAIT, touches, notes, call);
    stream.late_if(is_late, submit)?.1
}

impl<T: StreamValue> WaitValue<T> {
    /// Refuses a condition that no value fulfils.
    pub(super) fn check(self, op: &'static str) -> Result<()> {
        let endless = match self {
            Self::And(bits) => bits == T::ZERO,
            Self::Nor(bits) => bits == T::ONES,
            Self::Geq(_) | Self::Eq(_) => false,
        };
        Error::unless(!endless, op, "no value fulfils the condition, so the wait would never end")
    }
}

/// Refuses what the device does not support. All devices support 32 bits and the other conditions.
pub(super) fn require<T: StreamValue>(device: Device, until: Option<WaitValue<T>>) -> Result<()> {
    let (wide, nor) = (size_of::<T>() > 4, matches!(until, Some(WaitValue::Nor(_))));
    if !wide && !nor {
        return Ok(());
    }
    match stream_values(device)? {
        [false, _] if wide => Err(device.unsupported("64-bit stream memory operations")),
        [_, false] if nor => Err(device.unsupported("CU_STREAM_WAIT_VALUE_NOR")),
        _ => Ok(()),
    }
}
