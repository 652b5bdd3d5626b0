//! Signals: values that streams and the host tell each other.

pub(crate) mod semaphore;
pub(crate) mod value;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;

use cuda_sys::CUdeviceptr;

use crate::context::kept;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::pinned::{self, HostAddress, PinnedFlags};
use crate::process::release::Unreleased;
use crate::process::{driver, drop_hook};
use crate::signal::value::{StreamValue, WaitValue};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Bytes, Fences, Ledger, LedgerOf, Touch};
use crate::timeline::submit::submit;
use crate::types::resource::Resource;
use crate::util::sync::lock;

/// A value in host memory that streams of any device write and wait for, and that the host reads and
/// changes at any time, inside host functions too.
///
/// Reading and changing it waits for nothing and calls no driver. What a thread did before
/// [`Signal::set`] is visible to whichever thread then reads the value, and to the work that waited
/// for it; what a stream did before [`Stream::write_signal`] is visible to whichever thread reads
/// that value.
///
/// A stream that waits is held up until the value comes, and so is whatever waits for the stream.
/// That includes the host, wherever it looks at, changes or drops pinned memory that the stream's
/// work uses, or waits for the stream: the thread that is to [set](Signal::set) the signal does
/// none of these before. Nor does it make a call that waits for the whole device, such as
/// `cuMemFree`, or allocate where the device has no memory left: before it fails, the allocator waits
/// for memory that is about to be freed; nor upload more on the stream than [`Stream::upload_from`]
/// stages without waiting. CUDA does not see the dependency: it may put the work that would bring the
/// value behind the wait, where both share a hardware queue; so enqueue first what brings it, or order
/// the streams with [`Stream::wait_stream`] as well.
///
/// Dropping a signal neither waits nor calls the driver. Its place in memory is used again when
/// nothing that was enqueued uses it any more; if a stream still waits for a value that nobody can
/// set any more, its place is never used again, and that stream never goes on.
///
/// ```no_run
/// use cuda_core::{Device, Signal, WaitValue};
///
/// let device = Device::get(0)?;
/// let stream = device.create_stream()?;
/// let (go, done) = (Signal::new(device, 0u32)?, Signal::new(device, 0u32)?);
/// stream.wait_signal(&go, WaitValue::Geq(1))?;
/// stream.write_signal(&done, 1)?;
/// go.set(1); // now the stream goes on
/// while done.get() == 0 {
///     std::hint::spin_loop();
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Signal<T: StreamValue> {
    // INVARIANT: a word of a slab that is this signal's alone, and that devices and host touch only
    // as an atomic value of type `T`. Every operation that was enqueued on it is in the ledger.
    word: Word,
    ledger: Ledger,
    /// What there is to say when the memory is out of reach.
    initial: T,
}

/// The bytes that a signal's ledger speaks of.
const WORD: Bytes = 0..8;

/// Where a signal's value is.
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
struct Slab {
    base: HostAddress,
    /// One bit for each word that nobody uses.
    idle: u64,
}

struct Pool {
    slabs: Vec<Slab>,
    /// Words of signals that are gone, which work may still use; oldest first.
    retired: VecDeque<(Word, Fences)>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    slabs: Vec::new(),
    retired: VecDeque::new(),
});

/// Retired words that are looked at before a new slab is allocated.
const LOOKED_AT: usize = 8;

impl<T: StreamValue> Signal<T> {
    /// A new signal with that value, for streams of every device. Most signals share pinned memory
    /// with others, which the primary context of `device` has allocated; then there is no driver
    /// call.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of [`Device::context`].
    pub fn new(device: Device, value: T) -> Result<Self> {
        driver::ensure()?;
        let signal = Self {
            word: take(device)?,
            ledger: Ledger::default(),
            initial: value,
        };
        signal.set(value);
        Ok(signal)
    }

    /// The value now, with what was done before it was written (`Ordering::Acquire`).
    ///
    /// In a child of `fork`, and once the process exits, pinned memory may be gone: the value is
    /// then what it was at first.
    pub fn get(&self) -> T {
        if driver::is_gone() {
            return self.initial;
        }
        // SAFETY: the word is the signal's, aligned for 8 bytes, and touched atomically by all.
        unsafe { T::load(self.word.as_ptr()) }
    }

    /// Changes the value: what waits for it goes on, and sees what was done before
    /// (`Ordering::Release`). Nothing happens where [`Signal::get`] cannot see the value.
    pub fn set(&self, value: T) {
        if driver::is_gone() {
            return;
        }
        // SAFETY: the word is the signal's, aligned for 8 bytes, and touched atomically by all.
        unsafe { value.store(self.word.as_ptr()) }
    }

    /// The address of the value, for kernels and other libraries, valid while `self` lives. Host and
    /// devices reach it by the same address.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.word.as_ptr().addr() as CUdeviceptr
    }

    /// An operation on the value. They are all readers to the ledger: none waits for another, and
    /// all are waited for before the word is somebody else's.
    fn touch(&self) -> Touch<'_> {
        Touch {
            ledger: LedgerOf::Shared(&self.ledger),
            range: WORD,
            access: Access::Read,
        }
    }
}

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
    /// let done = cuda_core::Signal::new(device, 0u32)?;
    /// let mut buffer = stream.alloc::<u32>(1 << 20)?;
    /// stream.fill(&mut buffer, 7)?;
    /// stream.write_signal(&done, 1)?;
    /// while done.get() == 0 {
    ///     std::thread::yield_now(); // no driver call
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn write_signal<T: StreamValue>(&self, signal: &Signal<T>, value: T) -> Result<()> {
        let op = value::write_op::<T>();
        let core = self.core();
        let stream = core.bind(op)?;
        value::require::<T>(self.device(), None)?;
        let address = signal.as_raw();
        let call = |stream| {
            // SAFETY: pinned memory "is always directly accessible from all contexts on all devices
            // that support unified addressing" at the host's address; the word is aligned to 64
            // bytes and stays the signal's until the mark that is made of this has completed.
            unsafe { value::write::<T>(stream, address, value) }
        };
        submit(core, &stream, op, &mut [signal.touch()], call).1
    }

    /// Makes work enqueued from now on wait until the signal has a value:
    /// `cuStreamWaitValue32_v2` or `cuStreamWaitValue64_v2`, after a
    /// [checkpoint](Stream::checkpoint). What can go wrong is told at [`Signal`].
    ///
    /// # Errors
    /// [`Error::EndlessWait`] for a condition that nothing can fulfil;
    /// [`Error::Unsupported`] for 64 bits, or [`WaitValue::Nor`], on a
    /// device without them; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let stream = device.create_stream()?;
    /// use cuda_core::{Signal, WaitValue};
    ///
    /// let other = device.create_stream()?;
    /// let go = Signal::new(device, 0u64)?;
    /// other.wait_signal(&go, WaitValue::Eq(1))?;
    /// stream.write_signal(&go, 1)?; // the host has no part in it
    /// other.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn wait_signal<T: StreamValue>(
        &self,
        signal: &Signal<T>,
        until: WaitValue<T>,
    ) -> Result<()> {
        let op = value::wait_op::<T>();
        until.check(op)?;
        let core = self.core();
        let stream = core.bind(op)?;
        value::require(self.device(), Some(until))?;
        core.timeline().hold_up(stream.entered())?;
        let address = signal.as_raw();
        let call = |stream| {
            // SAFETY: pinned memory is at the same address for every device; the word is aligned to
            // 64 bits and stays the signal's until the mark that is made of this wait has
            // completed.
            unsafe { value::wait(stream, address, until) }
        };
        let (seq, result) = submit(core, &stream, op, &mut [signal.touch()], call);
        core.timeline().held_up_at(seq);
        result
    }
}

impl<T: StreamValue> Drop for Signal<T> {
    fn drop(&mut self) {
        // In a forked child our locks may be held by threads that no longer exist.
        if driver::is_gone() {
            return;
        }
        let mut fences = Fences::none();
        self.ledger
            .conflicts_exclusive(&WORD, Access::Write, None, &mut fences);
        let mut pool = lock(&POOL);
        if fences.is_empty() {
            pool.give(self.word);
        } else {
            pool.retired.push_back((self.word, fences));
        }
    }
}

impl<T: StreamValue + fmt::Debug> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.get()).finish()
    }
}

impl Word {
    fn as_ptr(self) -> *mut u8 {
        let slab = self.slab.0.as_ptr();
        // SAFETY: a slab has `WORDS` words, and the index is of one of them.
        unsafe { slab.add(self.index as usize * STRIDE) }
    }
}

impl Slab {
    fn is_home_of(&self, word: Word) -> bool {
        self.base.0 == word.slab.0
    }

    /// Says that nobody gives the slab back.
    fn leak(self, why: Error) {
        let address = self.base.0.addr().get() as u64;
        drop_hook::report(Resource::PinnedMemory, address, SLAB, Some(why));
    }
}

impl Pool {
    /// A word that nobody uses, which then is the caller's.
    fn take(&mut self) -> Option<Word> {
        let slab = self.slabs.iter_mut().find(|slab| slab.idle != 0)?;
        let index = slab.idle.trailing_zeros();
        slab.idle &= !(1 << index);
        Some(Word {
            slab: slab.base,
            index,
        })
    }

    fn give(&mut self, word: Word) {
        if let Some(slab) = self.slabs.iter_mut().find(|slab| slab.is_home_of(word)) {
            slab.idle |= 1 << word.index;
        }
    }
}

/// An idle word, one that turns out to be, or one of a new slab.
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
    // The first word is the caller's, whatever others have given back meanwhile.
    pool.slabs.push(Slab { base, idle: !1 });
    Ok(Word {
        slab: base,
        index: 0,
    })
}

/// Gives back the retired words that are known to be idle, and forgets what their points name. No
/// driver call.
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
    // The last reference to a timeline destroys its events: not under the lock.
    drop(pool);
    drop(spent);
}

/// Looks which retired words are idle by now.
fn reap(most: usize) {
    let count = lock(&POOL).retired.len().min(most);
    for _ in 0..count {
        let Some((word, fences)) = lock(&POOL).retired.pop_front() else {
            return;
        };
        // Asks the driver, and the last reference to a timeline calls it: not under the lock.
        match fences.query() {
            Ok(true) => lock(&POOL).give(word),
            Err(Error::LostStream) => set_aside(word),
            Ok(false) | Err(_) => lock(&POOL).retired.push_back((word, fences)),
        }
    }
}

/// Gives up the slab of a word that a device may use for all that anybody can prove. Signals that
/// are in it stay what they are.
fn set_aside(word: Word) {
    let slab = {
        let mut pool = lock(&POOL);
        let at = pool.slabs.iter().position(|slab| slab.is_home_of(word));
        at.map(|at| pool.slabs.swap_remove(at))
    };
    if let Some(slab) = slab {
        slab.leak(Error::LostStream);
    }
}

/// Gives back the slabs that no signal uses: `cuMemFreeHost`. One of which nobody knows whether it
/// is gone is given up.
pub(crate) fn trim() -> Result<usize> {
    reap(usize::MAX);
    let mut gone = 0;
    loop {
        let slab = {
            let mut pool = lock(&POOL);
            let at = pool.slabs.iter().position(|slab| slab.idle == u64::MAX);
            at.map(|at| pool.slabs.swap_remove(at))
        };
        let Some(slab) = slab else {
            return Ok(gone);
        };
        match pinned::free_raw(slab.base) {
            Ok(()) => gone += SLAB,
            Err(Unreleased::Kept(error)) => {
                lock(&POOL).slabs.push(slab);
                return Err(error);
            }
            Err(Unreleased::Unknown(error)) => {
                slab.leak(error.clone());
                return Err(error);
            }
        }
    }
}
