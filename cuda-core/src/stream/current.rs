//! The thread's current stream in each context, for code that takes no stream argument.
//!
//! The current stream is a concept of this crate, not of the driver, so it needs no driver call. Entering a
//! stream also makes its context current, which costs what [`Guard`] costs.

use std::cell::RefCell;

use crate::context::{Context, Guard};
use crate::device::Device;
use crate::error::Result;
use crate::process::driver;
use crate::stream::Stream;
use crate::timeline::Flavor;
use crate::util::debug_by;

thread_local! {
    /// The current streams that are not default streams, at most one per context. The list keeps
    /// them alive.
    static CURRENT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The thread's current stream in the context, unless it is the default stream. [`None`], and so the default
/// stream, on a thread whose thread-locals are destroyed.
fn get(context: &Context) -> Option<Stream> {
    let find = |current: &RefCell<Vec<Stream>>| {
        let current = current.borrow();
        current.iter().find(|s| s.context() == context).cloned()
    };
    CURRENT.try_with(find).ok().flatten()
}

/// Makes `stream` current in its context. Returns the stream that it replaces, for the caller to drop: the
/// drop may destroy that stream and run arbitrary user code.
fn set(stream: &Stream) -> Option<Stream> {
    let is_default = stream.core().timeline().flavor() == Flavor::Legacy;
    let put = |current: &RefCell<Vec<Stream>>| {
        let mut current = current.borrow_mut();
        let at = current.iter().position(|s| s.context() == stream.context());
        let replaced = at.map(|at| current.swap_remove(at));
        if !is_default {
            current.push(stream.clone());
        }
        replaced
    };
    CURRENT.try_with(put).ok().flatten()
}

/// # Streams
impl Context {
    /// The calling thread's current stream in this context: the one that was last
    /// [set](Stream::set_current) or [entered](Stream::enter), at first the legacy
    /// [default stream](Context::default_stream).
    ///
    /// Each thread has its own current stream in each context. No driver call.
    ///
    /// # Errors
    /// [`Error::InCallback`](crate::Error::InCallback) inside a host function.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let stream = context.current_stream()?; // whatever the caller chose
    /// stream.alloc_zeroed::<f32>(1000)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn current_stream(&self) -> Result<Stream> {
        driver::ensure()?;
        get(self).map_or_else(|| self.default_stream(), Ok)
    }
}

/// # Streams
impl Device {
    /// The calling thread's current stream in the primary context; see [`Context::current_stream`].
    ///
    /// # Errors
    /// Those of [`Device::context`].
    ///
    /// ```no_run
    /// # fn work() -> cuda_core::Result<()> { Ok(()) }
    /// let device = cuda_core::Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let entered = stream.enter()?;
    /// assert_eq!(device.current_stream()?, stream);
    /// work()?; // asks for the device's current stream, and gets this one
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn current_stream(self) -> Result<Stream> {
        self.context()?.current_stream()
    }
}

/// # The current stream of a thread
impl Stream {
    /// Makes this the calling thread's current stream in the stream's context, and returns the former one.
    /// Makes no driver call, waits for nothing and makes no other context current; the current streams of
    /// other contexts stay unchanged, also on other devices.
    ///
    /// The thread keeps the stream alive until another one replaces it, or the thread ends. Prefer
    /// [`Stream::enter`], which restores the former stream.
    ///
    /// # Errors
    /// [`Error::InCallback`](crate::Error::InCallback) inside a host function.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let before = stream.set_current()?;
    /// assert_eq!(device.current_stream()?, stream);
    /// before.set_current()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_current(&self) -> Result<Stream> {
        let before = self.context().current_stream()?;
        drop(set(self));
        Ok(before)
    }

    /// Makes this the calling thread's current stream, and its context the current context, until
    /// the guard is dropped; see [`StreamGuard`].
    ///
    /// # Errors
    /// Those of [`Context::enter`]; nothing has changed then.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let guard = stream.enter()?;
    /// // A library called here finds the context current, and asks for the stream:
    /// assert_eq!(device.current_stream()?, stream);
    /// guard.restore()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn enter(&self) -> Result<StreamGuard> {
        let saved = self.context().current_stream()?;
        let context = self.context().enter()?;
        drop(set(self));
        let slot = SavedStream { entered: self.clone(), saved };
        Ok(StreamGuard { slot, context })
    }
}

/// Makes a stream current, and its context with it, until the guard is dropped. Then it restores
/// the context's former stream and the thread's former context.
///
/// The guard never blocks. Entering a stream of another device switches both the stream and the context.
///
/// Guards that are dropped out of order restore what each of them saw; the last one dropped decides. A
/// forgotten guard leaves its stream and its context current and alive.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// let (outer, inner) = (device.create_stream()?, device.create_stream()?);
/// let _outer = outer.enter()?;
/// {
///     let _inner = inner.enter()?;
///     assert_eq!(device.current_stream()?, inner);
/// }
/// assert_eq!(device.current_stream()?, outer);
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// A guard belongs to its thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let stream = cuda_core::Device::get(0).unwrap().create_stream().unwrap();
/// send(stream.enter().unwrap());
/// ```
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    // Dropped in this order: the stream is restored before the context.
    slot: SavedStream,
    context: Guard,
}

/// The current stream of one context from before the guard.
struct SavedStream {
    entered: Stream,
    saved: Stream,
}

impl StreamGuard {
    /// The stream that the guard made current.
    pub fn stream(&self) -> &Stream {
        &self.slot.entered
    }

    /// Ends the scope now; dropping the guard reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead. The former stream is current again in either
    /// case.
    ///
    /// # Errors
    /// Those of [`Guard::restore`].
    pub fn restore(self) -> Result<()> {
        let Self { slot, context } = self;
        drop(slot);
        context.restore()
    }
}

impl Drop for SavedStream {
    fn drop(&mut self) {
        drop(set(&self.saved));
    }
}

debug_by! {
   [] StreamGuard: |it| "StreamGuard" {
       stream: it.slot.entered, saved: it.slot.saved, context: it.context
   }
}
