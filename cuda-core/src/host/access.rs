//! The host's access to pinned memory, after the devices' work on it.

use crate::error::{Error, Result};
use crate::host::{PinnedSlice, PinnedSliceMut};
use crate::process::driver;
use crate::timeline::ledger::{Access, Fences};
use crate::types::Pod;

impl<'a, T: Pod> PinnedSlice<'a, T> {
    /// Returns the host address of the first element.
    pub(crate) fn as_ptr(&self) -> *mut T {
        // SAFETY: `start` is within the allocation, by the view's invariant.
        let first = unsafe { self.block().address.0.as_ptr().add(self.range().start) };
        first.cast()
    }

    /// [`PinnedBuffer::as_slice`](crate::PinnedBuffer::as_slice) for a view: waits for the copies that
    /// write it.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`](crate::PinnedBuffer::as_slice).
    pub fn as_slice(&self) -> Result<&'a [T]> {
        self.fences("as_slice", Access::Read)?.wait_host()?;
        // SAFETY: within the allocation and aligned, by the view's invariant; initialised, as pinned
        // memory always is. It is not written while the slice lives: the device's copies were waited
        // for, and new copies and the host need exclusive access, which the borrow `'a` rules out.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) })
    }

    /// Returns the elements, or [`None`] while copies that write them are pending.
    ///
    /// # Errors
    /// Those of [`as_slice`](Self::as_slice).
    pub fn try_as_slice(&self) -> Result<Option<&'a [T]>> {
        if !self.fences("try_as_slice", Access::Read)?.query()? {
            return Ok(None);
        }
        self.as_slice().map(Some)
    }

    /// Returns what the access has to wait for. In a host function, which cannot wait, pending work is
    /// an error.
    fn fences(&self, op: &'static str, access: Access) -> Result<Fences> {
        let can_wait = driver::ensure_or_in_callback()?;
        self.storage().ensure()?;
        let fences = self.ledger().conflicts_with_host(&self.range(), access, op)?;
        if can_wait || fences.is_empty() { Ok(fences) } else { Err(Error::InCallback) }
    }
}

impl<'a, T: Pod> PinnedSliceMut<'a, T> {
    /// [`PinnedBuffer::as_mut_slice`](crate::PinnedBuffer::as_mut_slice) for a view: waits for all
    /// copies that use it.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_mut_slice`](crate::PinnedBuffer::as_mut_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.reborrow().into_mut_slice()
    }

    /// [`as_mut_slice`](Self::as_mut_slice) with the lifetime of the view.
    ///
    /// # Errors
    /// As [`as_mut_slice`](Self::as_mut_slice).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{PinnedBuffer, Result};
    ///
    /// fn first(batch: &mut PinnedBuffer<f32>, len: usize) -> Result<&mut [f32]> {
    ///     batch.slice_mut(..len)?.into_mut_slice()
    /// }
    /// let mut batch = PinnedBuffer::zeroed(&context, 1 << 20)?;
    /// first(&mut batch, 1000)?.fill(1.0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn into_mut_slice(self) -> Result<&'a mut [T]> {
        let view = self.into_view();
        view.fences("as_mut_slice", Access::Write)?.wait_host()?;
        view.ledger().prune(&view.range());
        // SAFETY: within the allocation and aligned, by the view's invariant; initialised, as pinned
        // memory always is. Nothing else accesses it: the device's copies were waited for, and the view
        // is exclusive for `'a`.
        Ok(unsafe { std::slice::from_raw_parts_mut(view.as_ptr(), view.len()) })
    }
}
