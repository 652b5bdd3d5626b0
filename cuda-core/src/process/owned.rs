//! Resources with one owner, which releases them by `close` or `Drop`.

use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::error::{Error, Rejected, Result};
use crate::process::{Failed, deferred, driver, drop_hook, held};
use crate::types::Resource;

/// A resource of the driver that is released once.
pub(crate) trait Release: Send + 'static {
    /// The kind under which an unreleased resource is reported.
    const RESOURCE: Resource;

    /// The driver's handle, for the report.
    fn number(&self) -> u64;

    /// The resource's size in bytes, for the report.
    fn bytes(&self) -> usize {
        0
    }

    /// Waits for the work that uses the resource, then releases it by a driver call. Called again
    /// only if the resource was [kept](Failed::Refused).
    fn release(&mut self) -> Result<(), Failed>;
}

/// The owner of a resource: releases it when dropped, unless it was released before or
/// [given up](Error::GivenUp).
pub(crate) struct Owned<R: Release> {
    // INVARIANT: taken only by `Drop`.
    inner: ManuallyDrop<R>,
    // INVARIANT: false once the resource was released or given up.
    live: bool,
}

impl<R: Release> Owned<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner: ManuallyDrop::new(inner), live: true }
    }

    /// The resource; [`None`] if it was released or given up.
    pub(crate) fn get(&self) -> Option<&R> {
        self.live.then_some(&self.inner)
    }

    /// Returns the resource.
    ///
    /// # Errors
    /// [`Error::GivenUp`] if it was released or given up; those of [`driver::ensure`].
    pub(crate) fn live(&self) -> Result<&R> {
        driver::ensure()?;
        // The error is constructed only if there is no resource: an unused one would have to be dropped.
        let Some(resource) = self.get() else { return Err(Error::GivenUp { what: R::RESOURCE }) };
        Ok(resource)
    }

    /// Leaves the resource to the caller: this owner no longer releases it.
    ///
    /// # Errors
    /// Those of [`Owned::live`].
    pub(crate) fn disown(&mut self) -> Result<&R> {
        self.live()?;
        self.live = false;
        Ok(&self.inner)
    }

    /// Moves the resource to another owner, if it was not released or given up. `to` takes the contents from
    /// this one.
    pub(crate) fn pass_on(&mut self, to: impl FnOnce(&mut R) -> R) -> Option<Self> {
        mem::take(&mut self.live).then(|| Self::new(to(&mut self.inner)))
    }

    /// Releases the resource now, as `close` does. If the release fails and the resource was
    /// [kept](Failed::Refused), it is unchanged.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.live()?;
        let released = self.inner.release();
        self.live = matches!(released, Err(Failed::Refused(_)));
        released.map_err(|why| why.into_reported(R::RESOURCE, self.number(), self.bytes()))
    }
}

/// [`Owned::release`], if this is the last reference; otherwise only drops the reference.
pub(crate) fn close<R: Release>(shared: Arc<Owned<R>>) -> Result<(), Rejected<Arc<Owned<R>>>> {
    let ((), shared) = Rejected::unless(shared.live().map(drop), shared)?;
    match Arc::try_unwrap(shared) {
        Ok(mut sole) => sole.release().map_err(|error| Rejected::new(error, Arc::new(sole))),
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
        // SAFETY: the field is not touched after this, the only place that takes it.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if !self.live {
            return;
        }
        deferred::run_or_defer(move || let_go(inner));
    }
}

/// Releases the resource, or reports it. If other code captures a stream that uses it, keeps it for a later
/// try.
fn let_go<R: Release>(mut inner: R) {
    match inner.release() {
        Ok(()) => {}
        Err(Failed::Refused(error)) if held::is_held(&error) => {
            held::keep(move || let_go(inner));
        }
        Err(why) => {
            drop_hook::report(R::RESOURCE, inner.number(), inner.bytes(), Some(why.into()));
        }
    }
}
