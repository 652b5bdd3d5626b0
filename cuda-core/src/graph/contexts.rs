//! The contexts that a graph is captured on.

use std::array;

use crate::context::Context;

/// The contexts that are passed to [`Graph::capture`](crate::Graph::capture), `capture_by_access`
/// and `build`, with one entry for each stream: one as `&Context`; an array, `[&Context; N]` or
/// `&[Context; N]`; or a list, `Vec<&Context>`, `&Vec<Context>` or `&[Context]`. The streams come as
/// one, an array or a `Vec`. Sealed.
///
/// ```no_run
/// # use cuda_core::Device;
/// # let context = Device::get(0)?.context()?;
/// # let width = 4;
/// # let mut x = context.alloc::<u32>(100)?;
/// let graph = cuda_core::Graph::capture(vec![&context; width], |streams| {
///     let streams: Vec<&cuda_core::Stream> = streams;
///     streams[width - 1].fill(&mut x, 1)
/// })?;
/// let contexts = Device::contexts(Device::all()?)?;
/// let graph = cuda_core::Graph::capture(&contexts, |streams| streams[0].fill(&mut x, 1))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `&Context`, and no array, vector or slice of contexts"
)]
#[expect(private_bounds, reason = "sealed")]
pub trait GraphContexts<'c>: Sealed<'c> {
    /// The same shape, with other values.
    type Each<T>;

    #[doc(hidden)]
    fn each<T>(count: usize, make: impl FnMut(usize) -> T) -> Self::Each<T>;
}

pub(super) trait Sealed<'c> {
    fn list(self) -> Vec<&'c Context>;
}

/// Implements both traits for types. Given for each type: what its streams come as, the list of its
/// contexts, and how `count` values of `make` take that shape.
macro_rules! graph_contexts {
    ($([$($generic:tt)*] $contexts:ty => $each:ty, |$it:ident| $list:expr, |$count:ident, $make:ident| $made:expr;)*) => {$(
        impl<'c, $($generic)*> Sealed<'c> for $contexts {
            fn list(self) -> Vec<&'c Context> {
                let $it = self;
                $list
            }
        }

        impl<'c, $($generic)*> GraphContexts<'c> for $contexts {
            type Each<T> = $each;

            fn each<T>($count: usize, mut $make: impl FnMut(usize) -> T) -> $each {
                $made
            }
        }
    )*};
}

graph_contexts! {
    [] &'c Context => T, |it| vec![it], |_count, make| make(0);
    [const N: usize] [&'c Context; N] => [T; N], |it| it.to_vec(), |_count, make| array::from_fn(&mut make);
    [const N: usize] &'c [Context; N] => [T; N], |it| it.iter().collect(), |_count, make| array::from_fn(&mut make);
    [] Vec<&'c Context> => Vec<T>, |it| it, |count, make| (0..count).map(&mut make).collect();
    [] &'c Vec<Context> => Vec<T>, |it| it.iter().collect(), |count, make| (0..count).map(&mut make).collect();
    [] &'c [Context] => Vec<T>, |it| it.iter().collect(), |count, make| (0..count).map(&mut make).collect();
}
