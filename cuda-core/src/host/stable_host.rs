//! Owners of host memory that does not move.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::types::Pod;

/// A value that owns elements in host memory, which do not move when the value moves: a device may read
/// them while the value is kept.
///
/// Implemented for `Vec<T>`, `Box<[T]>`, `Arc<[T]>` and `Arc<Vec<T>>`.
///
/// # Safety
/// From the call of [`elements`](Self::elements) on, while the value is neither used, apart from being
/// moved, nor dropped:
/// * the returned elements are initialised, and stay allocated at the same place;
/// * no code writes them;
/// * only this crate begins to register them with the driver, or ends a registration that this crate
///   has made.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::ptr::NonNull;
///
/// use cuda_core::pinned::StableHost;
///
/// /// Samples of a recording, which no method of its own changes.
/// struct Recording(Vec<i16>);
///
/// // SAFETY: the samples are the vector's, on the heap, where they stay when it moves, and no
/// // other owner has them.
/// unsafe impl StableHost for Recording {
///     type Element = i16;
///
///     fn elements(&mut self) -> NonNull<[i16]> {
///         self.0.elements()
///     }
/// }
///
/// let mut buffer = stream.alloc(48_000)?;
/// let upload = stream.upload_owned(Recording(vec![0; 48_000]), &mut buffer);
/// let recording = upload?.wait()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub unsafe trait StableHost: Send + Sync + 'static {
    /// The type of the elements.
    type Element: Pod;

    /// Returns where the elements are.
    fn elements(&mut self) -> NonNull<[Self::Element]>;
}

/// A [`StableHost`] whose elements no other code reads, so that a device may also write them.
///
/// Implemented for `Vec<T>` and `Box<[T]>`.
///
/// # Safety
/// For as long as [`StableHost`] requires, no other code reads the elements, and they may be
/// written through the pointer that [`elements`](StableHost::elements) returned.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{DeviceBuffer, Result, Stream, pinned::StableHostMut};
///
/// /// Fills whatever holds bytes.
/// fn fetch<H>(stream: &Stream, from: &DeviceBuffer<u8>, into: H) -> Result<H>
/// where
///     H: StableHostMut<Element = u8>,
/// {
///     let download = stream.download_owned(from, into)?;
///     Ok(download.wait()?)
/// }
/// let bytes = fetch(&stream, &stream.alloc_zeroed(100)?, vec![1; 100])?;
/// assert_eq!(bytes, [0; 100]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub unsafe trait StableHostMut: StableHost {}

// SAFETY: a vector's elements are on the heap, so moving the vector does not move them, and no other
// code has access to them.
unsafe impl<T: Pod> StableHost for Vec<T> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(self.as_mut_slice())
    }
}

// SAFETY: the vector is kept, so no other code has access to the elements, and the pointer comes from
// an exclusive borrow, so they may be written through it.
unsafe impl<T: Pod> StableHostMut for Vec<T> {}

// SAFETY: a box's elements are on the heap, so moving the box does not move them, and no other code has
// access to them.
unsafe impl<T: Pod> StableHost for Box<[T]> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: the box is kept, so no other code has access to the elements, and the pointer comes from an
// exclusive borrow, so they may be written through it.
unsafe impl<T: Pod> StableHostMut for Box<[T]> {}

// SAFETY: the elements stay on the heap while one reference is kept. Other references can only read
// them, since `Arc::get_mut` needs the only reference and `Pod` has no interior mutability; registering
// them takes `unsafe` code, which must keep this trait's promise.
unsafe impl<T: Pod> StableHost for Arc<[T]> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(&**self)
    }
}

// SAFETY: one reference is kept, so the vector lives, and no code has mutable access to it. So the
// elements neither move nor are written, since `Pod` has no interior mutability; registering them takes
// `unsafe` code, as above.
unsafe impl<T: Pod> StableHost for Arc<Vec<T>> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(self.as_slice())
    }
}

/// A [`StableHost`] that a device may read but not write, even if its owner may:
/// [`Registered::read_only`](crate::Registered::read_only) registers it.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::{Registered, pinned::RegisterFlags};
///
/// let shared: Arc<[f32]> = vec![1.0; 1 << 20].into();
/// let host = Registered::read_only(&context, shared.clone(), RegisterFlags::PORTABLE)?;
/// let mut buffer = stream.alloc(1 << 20)?;
/// stream.upload(host.as_view(), &mut buffer)?; // while others read `shared`
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReadOnly<H>(pub H);

// SAFETY: the elements are those of `H`, which promises that they stay and are not written; moving this
// value only moves `H`.
unsafe impl<H: StableHost> StableHost for ReadOnly<H> {
    type Element = H::Element;

    fn elements(&mut self) -> NonNull<[H::Element]> {
        self.0.elements()
    }
}
