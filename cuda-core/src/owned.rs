//! What has one owner, and is released by its `close` or its `Drop`.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::driver;
use crate::drops::{self, Resource};
use crate::error::{Error, Result};
use crate::release::Unreleased;

/// Something of the driver's that is released once.
pub(crate) trait Release: Send + 'static {
    /// What one that was not released is reported as.
    const RESOURCE: Resource;

    /// The driver's handle, for the report.
    fn number(&self) -> u64;

    /// Its size in bytes, for the report.
    fn bytes(&self) -> usize {
        0
    }

    /// Waits for the work that uses it, and makes the call that releases it. Called again only after it
    /// was [kept](Unreleased::Kept).
    fn release(&mut self) -> Result<(), Unreleased>;
}

/// The owner of one: releases it when it is dropped, unless that was done or it was
/// [given up](Error::GivenUp).
pub(crate) struct Owned<R: Release> {
    // INVARIANT: taken by `Drop` alone.
    inner: ManuallyDrop<R>,
    // INVARIANT: false from the release on.
    live: bool,
}

impl<R: Release> Owned<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner: ManuallyDrop::new(inner),
            live: true,
        }
    }

    /// [`None`] if it was released or given up.
    pub(crate) fn get(&self) -> Option<&R> {
        self.live.then_some(&self.inner)
    }

    /// # Errors
    /// [`Error::GivenUp`]; those of [`driver::ensure`].
    pub(crate) fn live(&self) -> Result<&R> {
        driver::ensure()?;
        let what = R::RESOURCE;
        self.get().ok_or(Error::GivenUp { what })
    }

    /// What `close` does: releases it now. Where the error says that it was kept, it is as before.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.live()?;
        let released = self.inner.release();
        self.live = matches!(released, Err(Unreleased::Kept(_)));
        released.map_err(|why| why.into_told(R::RESOURCE, self.number(), self.bytes()))
    }
}

/// Releases it if this is the last reference, as [`Owned::release`] does.
pub(crate) fn close<R: Release>(shared: Arc<Owned<R>>) -> Result<(), (Error, Arc<Owned<R>>)> {
    if let Err(error) = shared.live() {
        return Err((error, shared));
    }
    match Arc::try_unwrap(shared) {
        Ok(mut sole) => sole.release().map_err(|error| (error, Arc::new(sole))),
        Err(_shared) => Ok(()),
    }
}

impl<R: Release> Deref for Owned<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.inner
    }
}

impl<R: Release> DerefMut for Owned<R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.inner
    }
}

impl<R: Release> Drop for Owned<R> {
    fn drop(&mut self) {
        // SAFETY: the field is not touched after this, the only taking.
        let mut inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if !self.live {
            return;
        }
        drops::run_or_defer(move || {
            if let Err(why) = inner.release() {
                drops::report(R::RESOURCE, inner.number(), inner.bytes(), Some(why.into()));
            }
        });
    }
}
