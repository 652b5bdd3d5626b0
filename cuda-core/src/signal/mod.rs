//! Signals: values by which streams and the host notify each other.

pub(crate) mod semaphore;
pub(crate) mod value;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Mutex;

use cuda_sys::CUdeviceptr;

use crate::context::{Context, kept};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::pinned::{self, HostAddress, PinnedFlags};
use crate::process::release::FailedRelease;
use crate::process::{driver, drop_hook};
use crate::signal::value::{StreamValue, WaitValue};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Bytes, Fences, InGraphs, Ledger, Touch};
use crate::types::resource::Resource;
use crate::util::by_parts::debug_by;
use crate::util::sync::lock;

/// A value in host memory that streams of any device write and wait for, and that the host reads
/// and changes at any time, inside host functions too.
///
/// Reading and changing it neither blocks nor calls the driver. What a thread did before
/// [`Signal::set`] is visible to every thread that then reads the value, and to the work that
/// waited for it; what a stream did before [`Stream::write_signal`] is visible to every thread that
/// reads that value.
///
/// A stream that waits for a value is held up until it comes, and so is everything that waits for
/// the stream. That includes the host when it reads, changes or drops pinned memory that the
/// stream's work uses, or waits for the stream: the thread that is to [set](Signal::set) the signal
/// must do none of these before. Nor may it make a call that waits for the whole device, such as
/// `cuMemFree`, or allocate when the device has no memory left (before it fails, the allocator
/// waits for memory that is about to be freed), or upload more on the stream than
/// [`Stream::upload`] stages without waiting. CUDA does not see the dependency: if both
/// streams share a hardware queue, it may queue the work that would bring the value after the wait,
/// and then neither proceeds. So enqueue the work that brings the value first, or order the streams with [`Stream::wait_stream`] as well.
///
/// Dropping a signal does not wait, and calls the driver only to destroy events of streams that are gone. Its place in memory is reused when no
/// enqueued work uses it any more. If a stream still waits for a value that no code can set any
/// more, that place is never reused, and that stream never goes on.
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
    // INVARIANT: a word of a slab that is this signal's alone, and that devices and host access
    // only as an atomic value of type `T`. Every operation that was enqueued on it is in the
    // ledger.
    word: Word,
    ledger: Ledger,
    /// The value to return when the memory is out of reach.
    initial: T,
}

/// The bytes that a signal's ledger covers.
const WORD: Bytes = 0..8;

/// The place of a signal's value.
#[derive(Clone, Copy)]
struct Word {
    /// The slab that it is in.
    slab: HostAddress,
    index: u32,
}

/// Bytes from one word to the next: two signals do not share a cache line.
const STRIDE: usize = 64;

/// Words in a slab.
const WORDS: u32 = u64::BITS;

/// Bytes of a slab.
const SLAB: usize = STRIDE * WORDS as usize;

/// Pinned memory for [`WORDS`] signals. It is given back only on demand: `cuMemFreeHost` waits for
/// all of a device's work, some of which may wait for a signal.
struct SignalSlab {
    base: HostAddress,
    /// One bit for each unused word.
    idle: u64,
}

struct SignalPool {
    slabs: Vec<SignalSlab>,
    /// Words of dropped signals that work may still use; oldest first.
    retired: VecDeque<(Word, Fences)>,
}

static POOL: Mutex<SignalPool> =
    Mutex::new(SignalPool { slabs: Vec::new(), retired: VecDeque::new() });

/// How many retired words are checked before a new slab is allocated.
const LOOKED_AT: usize = 8;

impl<T: StreamValue> Signal<T> {
    /// A new signal with that value, for streams of every device and context. Makes no driver call if a
    /// slab of pinned memory has room; a new slab is allocated in the primary context of the context's
    /// device, and outlives both.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of [`Device::context`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Signal, WaitValue};
    ///
    /// let (stream, go) = (context.create_stream()?, Signal::new(&context, 0u32)?);
    /// stream.wait_signal(&go, WaitValue::Geq(1))?;
    /// go.set(1); // the stream goes on
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn new(context: &Context, value: T) -> Result<Self> {
        driver::ensure()?;
        let signal =
            Self { word: take(context.device())?, ledger: Ledger::default(), initial: value };
        signal.set(value);
        Ok(signal)
    }

    /// The present value, with what was done before it was written (`Ordering::Acquire`).
    ///
    /// In a child of `fork`, and once the process exits, pinned memory may be gone: this then
    /// returns the initial value.
    pub fn get(&self) -> T {
        if driver::is_gone() {
            return self.initial;
        }
        // SAFETY: the word is the signal's, aligned for 8 bytes, and all accesses to it are atomic.
        unsafe { T::load(self.word.as_ptr()) }
    }

    /// Changes the value: work that waits for it goes on, and sees what was done before
    /// (`Ordering::Release`). Does nothing when [`Signal::get`] cannot see the value.
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
        // SAFETY: the word is the signal's, aligned for 8 bytes, and all accesses to it are atomic.
        unsafe { value.store(self.word.as_ptr()) }
    }

    /// The address of the value, for kernels and other libraries, valid while `self` lives. Host
    /// and devices reach it by the same address.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.word.as_ptr().addr() as CUdeviceptr
    }

    /// The access of an operation on the value. All are readers to the ledger: none waits for
    /// another, and the word is reused only after all of them.
    fn touch(&self) -> Touch<'_> {
        Touch::shared(&self.ledger, WORD, Access::Read, InGraphs::Refused)
    }
}

/// # Signals
impl<K: StreamKind> Stream<K> {
    /// Sets the signal when everything enqueued so far has completed, and made its own writes
    /// visible: `cuStreamWriteValue32_v2` or `cuStreamWriteValue64_v2`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 64 bits on a device without them; the
    /// driver's.
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
    pub fn write_signal<T: StreamValue>(&self, signal: &Signal<T>, value: T) -> Result<()> {
        // SAFETY: pinned memory "is always directly accessible from all contexts on all devices that
        // support unified addressing" at the host's address; the word is aligned to 64 bytes and
        // stays the signal's until the mark that is made of this has completed.
        unsafe { value::write(self.core(), signal.as_raw(), value, signal.touch()) }
    }

    /// Makes work enqueued from now on wait until the signal has a value:
    /// `cuStreamWaitValue32_v2` or `cuStreamWaitValue64_v2`, after a
    /// [checkpoint](Stream::checkpoint). [`Signal`] describes what can go wrong.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a condition that no value fulfils; [`Error::Unsupported`] for 64
    /// bits, or [`WaitValue::Nor`], on a device without them; the driver's.
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
    pub fn wait_signal<T: StreamValue>(
        &self,
        signal: &Signal<T>,
        until: WaitValue<T>,
    ) -> Result<()> {
        until.check(T::WAIT)?;
        // SAFETY: pinned memory is at the same address for every device; the word is aligned to 64
        // bytes and stays the signal's until the mark that is made of this wait has completed.
        unsafe { value::wait(self.core(), signal.as_raw(), until, signal.touch()) }
    }
}

impl<T: StreamValue> Drop for Signal<T> {
    fn drop(&mut self) {
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if driver::is_gone() {
            return;
        }
        let fences = self.ledger.last_uses(&WORD);
        let mut pool = lock(&POOL);
        if fences.is_empty() {
            pool.give(self.word);
        } else {
            pool.retired.push_back((self.word, fences));
        }
    }
}

debug_by! { [T: StreamValue + Debug] Signal<T>: |it| "Signal"(it.get()) }

impl Word {
    fn as_ptr(self) -> *mut u8 {
        let slab = self.slab.0.as_ptr();
        // SAFETY: a slab has `WORDS` words, and the index is of one of them.
        unsafe { slab.add(self.index as usize * STRIDE) }
    }
}

impl SignalSlab {
    fn is_home_of(&self, word: Word) -> bool {
        self.base.0 == word.slab.0
    }

    /// Reports that the slab is never given back.
    fn leak(self, why: Error) {
        let address = self.base.0.addr().get() as u64;
        drop_hook::report(Resource::PinnedMemory, address, SLAB, Some(why));
    }
}

impl SignalPool {
    fn remove(&mut self, which: impl Fn(&SignalSlab) -> bool) -> Option<SignalSlab> {
        let at = self.slabs.iter().position(which)?;
        Some(self.slabs.swap_remove(at))
    }

    /// Takes an unused word for the caller.
    fn take(&mut self) -> Option<Word> {
        let slab = self.slabs.iter_mut().find(|slab| slab.idle != 0)?;
        let index = slab.idle.trailing_zeros();
        slab.idle &= !(1 << index);
        Some(Word { slab: slab.base, index })
    }

    fn give(&mut self, word: Word) {
        if let Some(slab) = self.slabs.iter_mut().find(|slab| slab.is_home_of(word)) {
            slab.idle |= 1 << word.index;
        }
    }
}

/// An idle word, one that a query shows to be idle, or one of a new slab.
fn take(device: Device) -> Result<Word> {
    if let Some(word) = lock(&POOL).take() {
        return Ok(word);
    }
    reap(LOOKED_AT);
    if let Some(word) = lock(&POOL).take() {
        return Ok(word);
    }
    let base = pinned::alloc_raw(device.primary()?, SLAB, PinnedFlags::PORTABLE)?;
    let _ = kept::SIGNALS.set(prune);
    let mut pool = lock(&POOL);
    // The first word is the caller's, even if other words have been given back meanwhile.
    pool.slabs.push(SignalSlab { base, idle: !1 });
    Ok(Word { slab: base, index: 0 })
}

/// Makes retired words idle that are known to be unused, and drops the references of their points.
/// No driver call.
fn prune() {
    let mut pool = lock(&POOL);
    let all = std::mem::take(&mut pool.retired).into_iter();
    let (done, retired): (Vec<_>, Vec<_>) = all.partition(|(_, last)| last.are_known_reached());
    pool.retired = retired.into();
    let give = |(word, spent)| {
        pool.give(word);
        spent
    };
    let spent: Vec<_> = done.into_iter().map(give).collect();
    // Dropping the last reference to a timeline destroys its events: not under the lock.
    drop(pool);
    drop(spent);
}

/// Queries up to `most` retired words, and makes the unused ones idle.
fn reap(most: usize) {
    let count = lock(&POOL).retired.len().min(most);
    for _ in 0..count {
        let Some((word, fences)) = lock(&POOL).retired.pop_front() else {
            return;
        };
        // Queries call the driver, and so does dropping the last reference to a timeline: not under
        // the lock.
        match fences.query() {
            Ok(true) => lock(&POOL).give(word),
            Err(Error::LostStream) => set_aside(word),
            Ok(false) | Err(_) => lock(&POOL).retired.push_back((word, fences)),
        }
    }
}

/// Gives up the slab of a word that a device may still use, since its stream is lost. Other signals
/// in that slab stay valid.
fn set_aside(word: Word) {
    let slab = lock(&POOL).remove(|slab| slab.is_home_of(word));
    if let Some(slab) = slab {
        slab.leak(Error::LostStream);
    }
}

/// Gives back the slabs that no signal uses: `cuMemFreeHost`. If that call fails, so that the slab
/// may be gone, it is given up.
pub(crate) fn trim() -> Result<usize> {
    reap(usize::MAX);
    let mut gone = 0;
    loop {
        let slab = lock(&POOL).remove(|slab| slab.idle == u64::MAX);
        let Some(slab) = slab else {
            return Ok(gone);
        };
        // SAFETY: memory of `alloc_raw`, which no signal has any more and no work uses; freed once.
        match unsafe { pinned::free_raw(slab.base) } {
            Ok(()) => gone += SLAB,
            Err(FailedRelease::Kept(error)) => {
                lock(&POOL).slabs.push(slab);
                return Err(error);
            }
            Err(FailedRelease::Unknown(error)) => {
                slab.leak(error.clone());
                return Err(error);
            }
        }
    }
}
