//! The thread's current context: the driver is asked every time, and nothing is cached.
//!
//! Other libraries switch it without this crate's knowledge, so only the driver's answer counts. This module
//! only keeps alive the created contexts that this crate left current.

use std::ptr;

use cuda_sys::{CUcontext, symbol as cu};

use crate::context::{self, Context, RawContext, thread};
use crate::device::Device;
use crate::error::{Error, Result, asked};
use crate::process::{Failed, Handle, attempt, deferred};

/// What was current before a call that changed it.
///
/// ```no_run
/// use cuda_core::{Context, Device};
///
/// let (one, two) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
/// let before = one.set_current()?; // replaces what was current, and says what that was
/// assert!(before.is_none());
/// two.push()?; // covers it
/// assert_eq!(Context::pop()?, two);
/// assert_eq!(Context::current()?, Some(one));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Current {
    /// Nothing.
    None,
    /// A context that this crate knows, and keeps alive through this value.
    Known(Context),
    /// A context that other code created; only its handle is known.
    Unknown(UnknownContext),
}

/// The handle of a context that other code created and may destroy.
///
/// This crate can use such a context once [`Context::from_raw`] is given the owner that keeps it
/// alive:
///
/// ```no_run
/// # use std::sync::Arc;
/// # struct Library;
/// # fn take_in(raw: cuda_core::sys::CUcontext, library: Arc<Library>) -> cuda_core::Result<()> {
/// use cuda_core::Context;
///
/// // SAFETY: `library` made the context, and destroys it with its own last reference.
/// let context = unsafe { Context::from_raw(raw, library) }?;
/// let stream = context.create_stream()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnknownContext(RawContext);

impl UnknownContext {
    /// The driver's handle; only its owner knows whether it is still valid.
    pub fn as_raw(self) -> CUcontext {
        self.0.0
    }
}

impl Current {
    pub(crate) fn new(raw: RawContext) -> Self {
        if raw.0.is_null() {
            return Current::None;
        }
        match context::known(raw) {
            Some(context) => Current::Known(context),
            None => Current::Unknown(UnknownContext(raw)),
        }
    }

    /// Whether nothing was current.
    pub fn is_none(&self) -> bool {
        matches!(self, Current::None)
    }

    /// The context, if this crate knows it.
    pub fn context(&self) -> Option<&Context> {
        match self {
            Current::Known(context) => Some(context),
            _ => None,
        }
    }

    /// The driver's handle, null if nothing was current.
    pub fn as_raw(&self) -> CUcontext {
        match self {
            Current::None => ptr::null_mut(),
            Current::Known(context) => context.as_raw(),
            Current::Unknown(unknown) => unknown.as_raw(),
        }
    }
}

/// `cuCtxGetCurrent`.
#[inline]
pub(crate) fn get() -> Result<RawContext> {
    // SAFETY: the call writes one handle, null if nothing is current, to an exclusive borrow.
    asked("cuCtxGetCurrent", ptr::null_mut(), |raw| unsafe { cu::cuCtxGetCurrent(raw) }).map(Handle)
}

/// [`get`] at the end of a scope, where a failure costs more: tries again if it fails.
#[inline]
pub(crate) fn get_again() -> Result<RawContext> {
    get().or_else(|first| get().map_err(|_| first))
}

/// `cuCtxSetCurrent`. The caller keeps the context alive while it stays current.
#[inline]
pub(crate) fn set(raw: RawContext) -> Result<(), Failed> {
    // SAFETY: null pops an entry. The caller ensures that any other handle is live, except for a context that
    // other code had made current and this crate does not know. Its owner is responsible for that: see
    // `Guard`.
    attempt("cuCtxSetCurrent", unsafe { cu::cuCtxSetCurrent(raw.0) })
}

/// Makes `raw` current in place of `saved`, which is current. If the call fails but may have taken effect,
/// undoes it; if that fails too, what is current is unknown, and `lost` gets the second error. The caller
/// gets the first.
#[inline]
pub(crate) fn set_or(saved: RawContext, raw: RawContext, lost: impl FnOnce(Error)) -> Result<()> {
    set(raw).map_err(|failed| failed.undo(|| restore(saved).unwrap_or_else(lost)))
}

/// `cuCtxPopCurrent_v2`.
pub(crate) fn pop() -> Result<RawContext> {
    // SAFETY: the call writes the handle that it popped to an exclusive borrow; an empty stack is an
    // error.
    asked("cuCtxPopCurrent", ptr::null_mut(), |raw| unsafe { cu::cuCtxPopCurrent_v2(raw) })
        .map(Handle)
}

/// `cuCtxPushCurrent`. The caller keeps the context alive while it is on the stack.
pub(crate) fn push(raw: RawContext) -> Result<(), Failed> {
    // SAFETY: the handle is live, as the caller ensures.
    attempt("cuCtxPushCurrent", unsafe { cu::cuCtxPushCurrent_v2(raw.0) })
}

/// Bound on the number of entries of a thread's stack.
const DEEPEST: usize = 1024;

/// Makes `saved` current again, whatever is current now.
///
/// `cuCtxSetCurrent(NULL)` only pops one entry. If nothing was current before, the stack was empty, so every
/// entry now on it was pushed since, and is popped.
pub(crate) fn restore(saved: RawContext) -> Result<()> {
    // Tried again if it fails: leaving the wrong context current would break the caller elsewhere.
    set(saved).or_else(|first| set(saved).map_err(|_| first)).inspect_err(|_| note_stray())?;
    if !saved.0.is_null() {
        return Ok(());
    }
    for _ in 0..DEEPEST {
        if get_again()?.0.is_null() {
            return Ok(());
        }
        set(saved)?;
    }
    Err(Error::ContextStack)
}

/// `cuCtxGetDevice`: the device of the current context.
pub(crate) fn device() -> Result<Device> {
    // SAFETY: the call writes one ordinal to an exclusive borrow; that nothing is current is an
    // error.
    Device::from_raw(asked("cuCtxGetDevice", 0, |raw| unsafe { cu::cuCtxGetDevice(raw) })?)
}

/// Notes that an inner scope could not restore what an outer one had made current.
pub(crate) fn note_stray() {
    thread::with(|thread| thread.strays.set(thread.strays.get().wrapping_add(1)));
}

/// Returns a count for this thread. If it differs from an earlier value, the context that was current then
/// may have been replaced permanently since.
#[inline]
pub(crate) fn strays() -> u32 {
    thread::with(|thread| thread.strays.get())
}

/// Takes kept contexts out of the stack of a thread that ends. The stack still exists, and destructors of
/// other libraries' thread-locals may ask what is current: the answer must not be a destroyed context.
pub(crate) fn end() {
    while let Some(OnStack { context, entries }) = with_kept(Vec::pop) {
        let raw = context.raw();
        if deferred::must_not_run_here() {
            continue;
        }
        if let Err(error) = take_out(raw, entries) {
            context.leave_behind(&error);
        }
    }
    release_all();
}

/// Removes up to `entries` of the context's topmost entries from the thread's stack. Other contexts' entries
/// above them stay, kept alive by the code that pushed them.
fn take_out(raw: RawContext, entries: usize) -> Result<()> {
    let mut above = Vec::new();
    let taken = pop_through(raw, entries, &mut above);
    // Pushes all of them back, also after an error.
    let back = above.into_iter().rev().map(push).fold(Ok(()), Result::and);
    taken.and(back.map_err(Error::from))
}

/// Pops until `entries` entries of the context are gone, or the stack is empty; adds popped entries of other
/// contexts to `above`.
fn pop_through(raw: RawContext, mut entries: usize, above: &mut Vec<RawContext>) -> Result<()> {
    while entries > 0 {
        if above.len() == DEEPEST {
            return Err(Error::ContextStack);
        }
        let now = get_again()?;
        if now.0.is_null() {
            break;
        }
        pop()?;
        match now == raw {
            true => entries -= 1,
            false => above.push(now),
        }
    }
    Ok(())
}

/// A context that is kept because this crate left it on the thread's stack.
pub(crate) struct OnStack {
    context: Context,
    // INVARIANT: not zero, and no fewer than the context's entries on the stack that this crate made. It is
    // more if other code has replaced or popped some, which this crate cannot notice.
    entries: usize,
}

/// Runs `f` on the list of contexts that are kept because they are on the thread's stack.
fn with_kept<R>(f: impl FnOnce(&mut Vec<OnStack>) -> R) -> R {
    thread::with(|thread| f(&mut thread.contexts.borrow_mut()))
}

/// Keeps `context` alive while it is on the thread's stack.
pub(crate) fn keep_pushed(context: &Context) {
    if context.is_primary() {
        return;
    }
    // If the thread's destructors have run, the contexts left on its stack are kept permanently.
    thread::with(thread::Thread::is_ended_with);
    with_kept(|kept| match kept.iter_mut().find(|kept| kept.context == *context) {
        Some(known) => known.entries += 1,
        None => kept.push(OnStack { context: context.clone(), entries: 1 }),
    });
}

/// Notes that the top of the stack, which was `before`, is now `context`; [`None`] stands for one that needs
/// no keeping.
pub(crate) fn keep_replaced(before: RawContext, context: Option<&Context>) {
    let replaced = with_kept(|kept| {
        let at = kept.iter().position(|kept| kept.context.raw() == before)?;
        kept[at].entries -= 1;
        (kept[at].entries == 0).then(|| kept.swap_remove(at))
    });
    if let Some(context) = context {
        keep_pushed(context);
    }
    // Dropped last: this may destroy the context, which must no longer be current.
    drop(replaced);
}

/// Keeps `context`, which is on the thread's stack, unless this crate keeps it already.
pub(crate) fn keep_present(context: &Context) {
    if !context.is_primary() && !with_kept(|kept| kept.iter().any(|kept| kept.context == *context))
    {
        keep_pushed(context);
    }
}

/// Notes that nothing is current any more, so the stack is empty.
pub(crate) fn release_all() {
    drop(with_kept(std::mem::take));
}
