//! The contexts that a graph is captured on.

use std::{array, slice};

use crate::context::Context;

/// The contexts that [`Graph::capture`](crate::Graph::capture), `capture_by_access` and `build` are given:
/// one as `&Context`, or an array `[&Context; N]` or a `Vec<&Context>`, with a context once for each stream.
/// The streams come in the same shape. Sealed.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let width = 4;
/// # let mut x = context.alloc::<u32>(100)?;
/// let graph = cuda_core::Graph::capture(vec![&context; width], |streams| {
///     let streams: Vec<&cuda_core::Stream> = streams;
///     streams[width - 1].fill(&mut x, 1)
/// })?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `&Context`, and no array or vector of them",
    note = "of a vector or a slice of contexts: `contexts.iter().collect::<Vec<_>>()`"
)]
#[expect(private_bounds, reason = "sealed")]
pub trait GraphContexts<'c>: Sealed<'c> {
    /// The same shape, of other values.
    type Each<T>;

    #[doc(hidden)]
    fn each<T>(&self, make: impl FnMut(usize) -> T) -> Self::Each<T>;
}

pub(super) trait Sealed<'c> {
    fn list(&self) -> &[&'c Context];
}

impl<'c> Sealed<'c> for &'c Context {
    fn list(&self) -> &[&'c Context] {
        slice::from_ref(self)
    }
}

impl<'c, const N: usize> Sealed<'c> for [&'c Context; N] {
    fn list(&self) -> &[&'c Context] {
        self
    }
}

impl<'c> Sealed<'c> for Vec<&'c Context> {
    fn list(&self) -> &[&'c Context] {
        self
    }
}

impl<'c> GraphContexts<'c> for &'c Context {
    type Each<T> = T;

    fn each<T>(&self, mut make: impl FnMut(usize) -> T) -> T {
        make(0)
    }
}

impl<'c, const N: usize> GraphContexts<'c> for [&'c Context; N] {
    type Each<T> = [T; N];

    fn each<T>(&self, make: impl FnMut(usize) -> T) -> [T; N] {
        array::from_fn(make)
    }
}

impl<'c> GraphContexts<'c> for Vec<&'c Context> {
    type Each<T> = Vec<T>;

    fn each<T>(&self, make: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.len()).map(make).collect()
    }
}
