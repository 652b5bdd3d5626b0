//! The code that kernels and global variables belong to, and the users of that code.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::library::LoadedLibrary;
use super::{Function, Loaded};
use crate::error::{Error, Result, c_string};
use crate::process::Owned;
use crate::timeline::ledger::{Ledger, WHOLE};
use crate::timeline::recording::KeptAlive;
use crate::timeline::{Mark, Timeline};
use crate::util::lock;

/// The module or library that keeps a kernel or a global variable loaded.
#[derive(Clone)]
pub(crate) enum Code {
    Module(Arc<Owned<Loaded>>),
    Library(Arc<Owned<LoadedLibrary>>),
}

impl Code {
    #[inline]
    pub(crate) fn users(&self) -> &Users {
        match self {
            Code::Module(loaded) => &loaded.users,
            Code::Library(library) => &library.users,
        }
    }

    /// Notes that a kernel was launched.
    #[inline]
    pub(crate) fn launched(&self, stream: &Arc<Timeline>, seq: u64) {
        match self {
            Code::Module(loaded) => loaded.users.launches.mark_whole(stream, seq),
            // A library belongs to no context, and keeps none alive once its launches are known to
            // have completed.
            Code::Library(library) => library.users.launches.mark_whole_apart(stream, seq),
        }
    }
}

/// Users of loaded code.
#[derive(Default)]
pub(crate) struct Users {
    /// Launches, as reads of one byte; unloading is a write of that byte.
    launches: Ledger,
    /// Addresses of the globals that a buffer covers.
    globals: Mutex<Vec<u64>>,
    /// Work on a global could not be waited for.
    in_use_for_good: AtomicBool,
}

/// Handles already found in code, by name.
pub(super) type ByName<V> = Mutex<HashMap<String, Arc<V>>>;

/// Returns the entry for that name. `look_up`, which names `op` in errors, finds it the first time.
pub(super) fn find_once<V>(
    known: &ByName<V>,
    op: &'static str,
    name: &str,
    look_up: impl FnOnce(&CStr) -> Result<V>,
) -> Result<Arc<V>> {
    if let Some(found) = lock(known).get(name) {
        return Ok(found.clone());
    }
    let new = look_up(&c_string(op, name)?)?;
    Ok(lock(known).entry(name.to_owned()).or_insert_with(|| Arc::new(new)).clone())
}

impl Users {
    /// Forgets launches that are known to have completed. Makes no driver call.
    pub(super) fn forget_reached(&self) {
        self.launches.prune(&WHOLE);
    }

    /// Takes the global at that address; returns whether it was free.
    pub(super) fn take_global(&self, address: u64) -> bool {
        let mut taken = lock(&self.globals);
        let free = !taken.contains(&address);
        if free {
            taken.push(address);
        }
        free
    }

    pub(super) fn give_global_back(&self, address: u64) {
        lock(&self.globals).retain(|taken| *taken != address);
    }

    /// Notes that work on a global may never complete, so that the code is never unloaded.
    pub(super) fn keep_for_good(&self) {
        self.in_use_for_good.store(true, Ordering::Release);
    }

    /// Waits until the launched kernels have completed. CUDA does not document that unloading code
    /// waits for them.
    pub(super) fn wait(&mut self) -> Result<()> {
        if *self.in_use_for_good.get_mut() {
            return Err(Error::LostStream);
        }
        self.launches.last_uses(&WHOLE).wait_host()
    }
}

impl KeptAlive for Function {
    /// Unloading the code waits for the launch.
    fn note_last_launch(&self, mark: &Mark) -> bool {
        self.launched(&mark.timeline, mark.seq);
        true
    }
}
