//! Copies of borrowed slices, through this crate's pinned chunks.

use std::marker::PhantomData;

use crate::copy::borrowed::staging::options::is_more_than;
use crate::copy::borrowed::staging::{CHUNK, Region};
use crate::copy::{LinearCopy, at_home};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, same_len};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Touch;
use crate::timeline::{Bound, StreamCore};
use crate::types::{Pod, bytes_of, bytes_of_mut};
use crate::util::debug_by;

use large::{DeviceEnd, Split};

pub(crate) mod large;
pub(crate) mod pieces;
mod pitched;
pub(crate) mod staging;

/// Implements [`Stream::upload`] of a borrowed slice.
pub(crate) fn upload<T: Pod>(
    core: &StreamCore,
    source: &[T],
    mut destination: DeviceSliceMut<'_, T>,
) -> Result<()> {
    let op = "cuMemcpyHtoDAsync";
    same_len(op, source.len(), destination.len())?;
    at_home(op, core, &destination.as_view())?;
    let bytes = bytes_of(source);
    if bytes.is_empty() {
        return Ok(());
    }
    if is_more_than(bytes.len(), large::ALONE) {
        let memory = destination.cast()?;
        return large::upload(bytes, vec![DeviceEnd { core, memory }], Split::Whole, unchanged);
    }
    let stream = core.bind(op)?;
    let mut region = staging::reserve(&stream, bytes.len())?;
    region.write(bytes)?;
    send(&region, &stream, &mut destination, 0, bytes.len())
}

/// Implements [`Stream::download`] to a borrowed slice.
pub(crate) fn download<T: Pod>(
    core: &StreamCore,
    source: DeviceSlice<'_, T>,
    destination: &mut [T],
) -> Result<()> {
    check_download(core, &source, destination.len())?;
    let bytes = bytes_of_mut(destination);
    if bytes.is_empty() {
        return Ok(());
    }
    if is_more_than(bytes.len(), CHUNK) {
        return download_large(core, source, bytes);
    }
    let stream = core.bind("cuMemcpyDtoHAsync")?;
    let region = stage(&stream, &source, 0, bytes.len())?;
    core.synchronize_bound(&stream)?;
    region.read(bytes)
}

/// The bytes that a scope stages before it waits for them.
const SCOPE_LIMIT: usize = 16 * CHUNK;

/// # Copies of borrowed memory, waited for once
impl<K: StreamKind> Stream<K> {
    /// Collects several downloads into borrowed slices and waits once for all of them.
    ///
    /// The slices are filled when the method returns `Ok`. If `f` returns an error or panics, or the
    /// wait fails, the slices are unchanged, except those that were already filled, wholly or in part, because
    /// more than 16 MiB were requested.
    ///
    /// # Errors
    /// Those of `f`, and of the wait.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let (a, b) = (stream.alloc_zeroed::<u8>(4)?, stream.alloc_zeroed::<u64>(2)?);
    /// let (mut x, mut y) = ([1u8; 4], [1u64; 2]);
    /// stream.scope(|scope| {
    ///     scope.download(&a, &mut x)?;
    ///     scope.download(&b, &mut y)
    /// })?;
    /// assert_eq!((x, y), ([0; 4], [0; 2]));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn scope<'env, R>(&self, f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R>) -> Result<R> {
        let mut scope =
            Scope { core: self.core(), staged: Vec::new(), bytes: 0, _not_send: PhantomData };
        let value = f(&mut scope)?;
        scope.finish()?;
        Ok(value)
    }
}

/// Downloads that are waited for together; see [`Stream::scope`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let buffers = [stream.alloc_zeroed::<u32>(4)?, stream.alloc_zeroed(8)?];
/// let mut back = [vec![1; 4], vec![1; 8]];
/// stream.scope(|scope| {
///     for (buffer, back) in buffers.iter().zip(&mut back) {
///         scope.download(buffer, back)?; // enqueued
///     }
///     Ok(())
/// })?; // the one wait
/// assert_eq!(back, [vec![0; 4], vec![0; 8]]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Scope<'s, 'env> {
    core: &'s StreamCore,
    staged: Vec<(Region, &'env mut [u8])>,
    /// The total bytes of these regions.
    bytes: usize,
    /// On another thread a per-thread default stream would be a different stream.
    _not_send: PhantomData<*const ()>,
}

debug_by! { [] Scope<'_, '_>: |it| "Scope" { bytes: it.bytes; .. } }

impl<'env> Scope<'_, 'env> {
    /// Copies device memory to a borrowed slice, which is filled when the scope ends.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call.
    pub fn download<'a, T: Pod>(
        &mut self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: &'env mut [T],
    ) -> Result<()> {
        let source = source.into();
        check_download(self.core, &source, destination.len())?;
        let bytes = bytes_of_mut(destination);
        if bytes.is_empty() {
            return Ok(());
        }
        if self.bytes + bytes.len() > SCOPE_LIMIT {
            self.finish()?;
        }
        if bytes.len() > SCOPE_LIMIT {
            return download_large(self.core, source, bytes);
        }
        let stream = self.core.bind("cuMemcpyDtoHAsync")?;
        for (index, piece) in bytes.chunks_mut(CHUNK).enumerate() {
            let region = stage(&stream, &source, index * CHUNK, piece.len())?;
            self.bytes += piece.len();
            self.staged.push((region, piece));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.core.synchronize()?;
        let staged = std::mem::take(&mut self.staged);
        if is_more_than(std::mem::take(&mut self.bytes), CHUNK) {
            return large::copy_out(staged);
        }
        let mut staged = staged.into_iter();
        staged.try_for_each(|(region, piece)| region.read(piece))
    }
}

fn check_download<T: Pod>(
    core: &StreamCore,
    source: &DeviceSlice<'_, T>,
    destination_len: usize,
) -> Result<()> {
    let op = "cuMemcpyDtoHAsync";
    same_len(op, source.len(), destination_len)?;
    at_home(op, core, source)
}

fn download_large<T: Pod>(
    core: &StreamCore,
    source: DeviceSlice<'_, T>,
    bytes: &mut [u8],
) -> Result<()> {
    let memory = source.cast()?;
    large::download(vec![DeviceEnd { core, memory }], bytes, unchanged)
}

/// A [`Blame`](large::Blame) that adds nothing: the caller of a copy on one stream knows its device.
fn unchanged(error: Error, _: Device) -> Error {
    error
}

/// Enqueues a copy of `len` bytes of `source`, from byte `start` on, into a new region.
fn stage<T: Pod>(
    stream: &Bound<'_>,
    source: &DeviceSlice<'_, T>,
    start: usize,
    len: usize,
) -> Result<Region> {
    let region = staging::reserve(stream, len)?;
    fetch(&region, stream, source, start, len)?;
    Ok(region)
}

/// Enqueues a copy of `len` bytes of `source`, from byte `start` on, into a region of `len` bytes.
/// Returns the point of the stream at which the region holds them.
fn fetch<T: Pod>(
    region: &Region,
    stream: &Bound<'_>,
    source: &DeviceSlice<'_, T>,
    start: usize,
    len: usize,
) -> Result<u64> {
    let copy = LinearCopy::down(source.as_raw() + start as u64, region.as_ptr(), len);
    submit(region, stream, copy, source.read())
}

/// Enqueues a copy of a region of `len` bytes to `destination`, from byte `start` on.
fn send<T: Pod>(
    region: &Region,
    stream: &Bound<'_>,
    destination: &mut DeviceSliceMut<'_, T>,
    start: usize,
    len: usize,
) -> Result<()> {
    let copy = LinearCopy::up(region.as_ptr(), destination.as_raw() + start as u64, len);
    submit(region, stream, copy, destination.write()).map(drop)
}

/// Enqueues the copy between a region and the device memory of `touch`; returns its point on the
/// stream.
#[inline]
fn submit(region: &Region, stream: &Bound<'_>, copy: LinearCopy, touch: Touch<'_>) -> Result<u64> {
    // SAFETY: the region has as many bytes as the copy and is not accessed until its mark has
    // completed; the device memory stays allocated until its own mark has completed.
    let call = move |stream| unsafe { copy.enqueue(stream) };
    let (seq, result) = stream.submit_copy(copy.op(), &mut [touch], Default::default, call);
    region.mark(stream.timeline(), seq);
    result.map(|()| seq)
}
