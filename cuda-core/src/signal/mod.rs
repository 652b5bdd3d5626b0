//! Signals: values by which streams and the host notify each other.

pub(crate) mod semaphore;
pub(crate) mod value;

use std::fmt::Debug;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::context::Context;
use crate::error::Result;
use crate::host::pinned_pool::{PinnedChunk, SIGNALS};
use crate::process::driver;
use crate::signal::value::{StreamValue, WaitValue};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, InGraphs, Ledger, Touch, WHOLE};
use crate::timeline::recording::KeptAlive;
use crate::timeline::{Bound, Mark, StreamCore};
use crate::util::debug_by;

/// A value in host memory that streams of any device write and wait for, and that the host reads
/// and changes at any time, inside host functions too.
///
/// Reading and changing the value neither blocks nor calls the driver. What a thread did before
/// [`Signal::set`] is visible to every thread that then reads the value, and to the work that waited for it.
/// What a stream did before [`Stream::write_signal`] is visible to every thread that reads that value.
///
/// A stream that waits for a value is held up until the value is written, and so is everything that waits for
/// the stream. That includes the host when it waits for the stream, when it reads or changes pinned or
/// managed memory that the stream's work uses, and when it drops what waits for that work: modules, arrays,
/// textures, imported semaphores, and managed, registered, write-combined, virtual, pitched and imported
/// memory. The thread that is to [set](Signal::set) the signal must do none of these before; an early return
/// drops, too. Nor may that thread make a call that waits for the whole device, such as `cuMemFree`, or
/// allocate when the device has no memory left (before it fails, the allocator waits for memory that is about
/// to be freed), or upload more on the stream than [`Stream::upload`] stages without waiting. CUDA does not
/// see the dependency between a stream that waits and one that writes: if both share a hardware queue, CUDA
/// may queue the write after the wait, and then neither proceeds. So enqueue the write first, or order the
/// streams with [`Stream::wait_stream`] as well.
///
/// Dropping a signal does not wait, and calls the driver only to destroy events of streams that are gone. The
/// signal's memory is reused when no enqueued work, and no graph, uses it any more. If a stream still waits
/// for a value that no code can set any more, that memory is never reused, and the stream never continues.
///
/// ```no_run
/// use cuda_core::{Device, Signal, WaitValue};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let (go, done) = (Signal::new(&context, 0u32)?, Signal::new(&context, 0u32)?);
/// stream.wait_signal(&go, WaitValue::Geq(1))?;
/// stream.write_signal(&done, 1)?;
/// go.set(1); // now the stream goes on
/// while done.get() == 0 {
///     std::hint::spin_loop();
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Signal<T: StreamValue> {
    // INVARIANT: devices and host access it only as an atomic value of type `T`.
    word: Arc<SignalWord>,
    /// The value to return when the memory is out of reach.
    initial: T,
}

/// The memory of a signal's value, which the signal shares with the graphs whose operations use it.
struct SignalWord {
    // INVARIANT: a chunk of `SIGNALS` that only this word uses. Every operation enqueued on it is in the
    // ledger; graphs keep the word until their last launch has completed.
    chunk: PinnedChunk,
    ledger: Ledger,
}

impl KeptAlive for SignalWord {
    /// Makes sure that the chunk is reused only after the launch.
    fn note_last_launch(&self, mark: &Mark) -> bool {
        self.ledger.mark_whole(&mark.timeline, mark.seq);
        true
    }
}

impl<T: StreamValue> Signal<T> {
    /// Makes a signal with that value, for streams of every device and context. Makes no driver call if a
    /// slab of pinned memory has room. A new slab is allocated in the primary context of `context`'s device,
    /// and outlives the signal and `context`.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory); those of
    /// [`Device::context`](crate::Device::context).
    pub fn new(context: &Context, value: T) -> Result<Self> {
        driver::ensure()?;
        let chunk = SIGNALS.take(context, size_of::<u64>())?;
        let word = Arc::new(SignalWord { chunk, ledger: Ledger::default() });
        let signal = Self { word, initial: value };
        signal.set(value);
        Ok(signal)
    }

    /// Returns the present value, and makes what was done before it was written visible
    /// (`Ordering::Acquire`).
    ///
    /// In a child of `fork`, and once the process exits, pinned memory may be gone: this then
    /// returns the initial value.
    pub fn get(&self) -> T {
        if driver::is_gone() {
            return self.initial;
        }
        // SAFETY: the chunk is the signal's, aligned for 8 bytes, and all accesses to it are atomic.
        unsafe { T::load(self.as_ptr()) }
    }

    /// Changes the value: work that waits for it continues, and sees what was done before
    /// (`Ordering::Release`). Does nothing where [`Signal::get`] cannot see the value.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Signal, WaitValue};
    ///
    /// let ready = Signal::new(stream.context(), 0u32)?;
    /// stream.wait_signal(&ready, WaitValue::Eq(1))?;
    /// assert!(!stream.query()?);
    /// ready.set(1);
    /// stream.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set(&self, value: T) {
        if driver::is_gone() {
            return;
        }
        // SAFETY: the chunk is the signal's, aligned for 8 bytes, and all accesses to it are atomic.
        unsafe { value.store(self.as_ptr()) }
    }

    /// The address of the value, for kernels and other libraries, valid while `self` lives. It is the same
    /// for the host and all devices.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.as_ptr().addr() as CUdeviceptr
    }

    fn as_ptr(&self) -> *mut u8 {
        self.word.chunk.base.0.as_ptr()
    }

    /// Binds the stream for an operation on the value, and returns the operation's access. The ledger counts
    /// all operations as readers: none waits for another, and the word is reused only after all of them. A
    /// graph that captures the operation keeps the word instead, and orders the operation like a host
    /// function.
    fn bind<'s>(
        &self,
        op: &'static str,
        core: &'s StreamCore,
    ) -> Result<(Bound<'s>, Option<Touch<'_>>)> {
        if core.timeline().recording().is_none() {
            let touch = Touch::shared(&self.word.ledger, WHOLE, Access::Read, InGraphs::Kept);
            return Ok((core.bind(op)?, Some(touch)));
        }
        Ok((core.bind_work(op)?, None))
    }
}

/// # Signals
impl<K: StreamKind> Stream<K> {
    /// Sets the signal when everything enqueued so far has completed, and made its own writes
    /// visible: `cuStreamWriteValue32_v2` or `cuStreamWriteValue64_v2`.
    ///
    /// On a stream that is captured, each launch of the graph sets the signal. In a graph
    /// [by access](crate::Graph::capture_by_access) this runs after all operations captured earlier, and
    /// before all captured later.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for 64 bits on a device that does not support them;
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) in a body of a [`Condition`](crate::Condition);
    /// the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let stream = device.create_stream()?;
    /// let done = cuda_core::Signal::new(stream.context(), 0u32)?;
    /// let mut buffer = stream.alloc::<u32>(1 << 20)?;
    /// stream.fill(&mut buffer, 7)?;
    /// stream.write_signal(&done, 1)?;
    /// while done.get() == 0 {
    ///     std::thread::yield_now(); // no driver call
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWriteValue32", "cuStreamWriteValue64"))]
    #[doc(alias("cuGraphAddBatchMemOpNode"))]
    pub fn write_signal<T: StreamValue>(&self, signal: &Signal<T>, value: T) -> Result<()> {
        let (stream, mut touch) = signal.bind(T::WRITE, self.core())?;
        // SAFETY: pinned memory "is always directly accessible from all contexts on all devices that
        // support unified addressing" at the host's address; the word is aligned to 64 bytes and
        // stays the signal's until the mark that is made of this has completed, or the last launch of the
        // graph has.
        unsafe {
            value::write(&stream, signal.as_raw(), value, touch.as_mut_slice(), Some(&signal.word))
        }
    }

    /// Makes work enqueued from now on wait until the signal has a value:
    /// `cuStreamWaitValue32_v2` or `cuStreamWaitValue64_v2`, after a
    /// [checkpoint](Stream::checkpoint). [`Signal`] describes what can go wrong. On a stream that is
    /// captured, each launch of the graph waits, in the order that [`Stream::write_signal`] describes.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a condition that no value fulfils;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for 64 bits, or [`WaitValue::Nor`], on a device that
    /// does not support them; [`Error::NotCapturable`](crate::Error::NotCapturable) in a body of a
    /// [`Condition`](crate::Condition); the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let stream = device.create_stream()?;
    /// use cuda_core::{Signal, WaitValue};
    ///
    /// let other = device.create_stream()?;
    /// let go = Signal::new(stream.context(), 0u64)?;
    /// other.wait_signal(&go, WaitValue::Eq(1))?;
    /// stream.write_signal(&go, 1)?; // the host has no part in it
    /// other.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWaitValue32", "cuStreamWaitValue64"))]
    #[doc(alias("cuGraphAddBatchMemOpNode"))]
    pub fn wait_signal<T: StreamValue>(
        &self,
        signal: &Signal<T>,
        until: WaitValue<T>,
    ) -> Result<()> {
        until.check(T::WAIT)?;
        let (stream, mut touch) = signal.bind(T::WAIT, self.core())?;
        // SAFETY: pinned memory is at the same address for every device; the word is aligned to 64
        // bytes and stays the signal's until the mark that is made of this wait has completed, or the last
        // launch of the graph has.
        unsafe {
            value::wait(&stream, signal.as_raw(), until, touch.as_mut_slice(), Some(&signal.word))
        }
    }
}

impl Drop for SignalWord {
    fn drop(&mut self) {
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if driver::is_gone() {
            return;
        }
        // The chunk is part of a slab, so this makes no driver call and does not fail.
        let _ = SIGNALS.give(self.chunk, self.ledger.last_uses(&WHOLE));
    }
}

debug_by! { [T: StreamValue + Debug] Signal<T>: |it| "Signal"(it.get()) }
