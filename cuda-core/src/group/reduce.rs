//! Reductions among the members, by NCCL.

use std::sync::Arc;

use crate::error::Result;
use crate::group::DeviceGroup;
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView};
use crate::nccl::{Element, OnStreams, Ranks, Reduction};
use crate::process::{DeferForeignCode, driver};
use crate::stream::Stream;
use crate::types::Pod;
use crate::util::lock;

/// # Reductions
///
/// Uses [NCCL](crate::nccl), whose communicator the group makes at the first use and keeps. So
/// reductions need NCCL's library, primary contexts, and each device at most once;
/// [`Error::Nccl`](crate::Error::Nccl) says that the library is absent or has failed. They run on
/// the members' streams, and calls [block](crate::nccl::CommunicatorOptions::blocking).
impl DeviceGroup {
    /// Combines the elements of all members, and gives each member the result: `ncclAllReduce`.
    ///
    /// # Errors
    /// As [`OnStreams`]; at the first use also as [`Ranks::init_all`].
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    /// use cuda_core::nccl::Reduction;
    ///
    /// let group = DeviceGroup::all()?;
    /// let losses = group.alloc_zeroed::<f32>(1)?; // one on each device
    /// let mut sums = group.alloc::<f32>(1)?;
    /// group.all_reduce(&losses, &mut sums, Reduction::Sum)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllReduce"))]
    pub fn all_reduce<'a, 'b, T: Element>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let sources = self.views("all_reduce", sources, DeviceSlice::device)?;
        let destinations = self.views("all_reduce", destinations, DeviceSliceMut::device)?;
        self.on_ranks(|ranks| ranks.all_reduce(sources, destinations, reduction))
    }

    /// Runs [`all_reduce`](Self::all_reduce) of each buffer into itself: `ncclAllReduce`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    /// use cuda_core::nccl::Reduction;
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut gradients = group.alloc_zeroed::<f32>(1 << 20)?; // and a kernel that computes them
    /// group.all_reduce_in_place(&mut gradients, Reduction::Average)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllReduce"))]
    pub fn all_reduce_in_place<'b, T: Element>(
        &self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let buffers = self.views("all_reduce", buffers, DeviceSliceMut::device)?;
        self.on_ranks(|ranks| ranks.all_reduce_in_place(buffers, reduction))
    }

    /// Combines the elements of all members, and gives each member a part of the result, in their
    /// order: `ncclReduceScatter`. A source holds as many elements for each member as a
    /// destination.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    /// use cuda_core::nccl::Reduction;
    ///
    /// let group = DeviceGroup::all()?;
    /// let gradients = group.alloc_zeroed::<f32>(1000 * group.len())?;
    /// let mut parts = group.alloc(1000)?; // the sums that each member updates its weights by
    /// group.reduce_scatter(&gradients, &mut parts, Reduction::Sum)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclReduceScatter"))]
    pub fn reduce_scatter<'a, 'b, T: Element>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let sources = self.views("reduce_scatter", sources, DeviceSlice::device)?;
        let destinations = self.views("reduce_scatter", destinations, DeviceSliceMut::device)?;
        self.on_ranks(|ranks| ranks.reduce_scatter(sources, destinations, reduction))
    }

    /// Copies the elements of each member to all members, in the order of the members:
    /// `ncclAllGather`. A destination holds as many elements for each member as a source.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let parts = group.alloc_zeroed::<f32>(1000)?;
    /// let mut weights = group.alloc(1000 * group.len())?;
    /// group.all_gather(&parts, &mut weights)?; // every member has all parts
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllGather"))]
    pub fn all_gather<'a, 'b, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let sources = self.views("all_gather", sources, DeviceSlice::device)?;
        let destinations = self.views("all_gather", destinations, DeviceSliceMut::device)?;
        self.on_ranks(|ranks| ranks.all_gather(sources, destinations))
    }

    /// Calls `f` with the group's communicator, whose rank `i` is the member `i`, on the members'
    /// streams, for [operations](OnStreams) that the group has no function for. Makes the
    /// communicator if there is none, and anew after NCCL has failed an operation, which aborts the
    /// communicator.
    ///
    /// # Errors
    /// Errors of `f`; at the first use also those of [`Ranks::init_all`].
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    /// use cuda_core::nccl::Reduction;
    ///
    /// let group = DeviceGroup::all()?;
    /// let losses = group.alloc_zeroed::<f32>(1)?;
    /// let mut worst = group.streams()[0].alloc::<f32>(1)?; // of all, on the first device alone
    /// group.on_ranks(|ranks| ranks.reduce(&losses, &mut worst, 0, Reduction::Max))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclReduce"))]
    pub fn on_ranks(&self, f: impl FnOnce(OnStreams<'_>) -> Result<()>) -> Result<()> {
        driver::ensure()?;
        // What joining drops may report to a hook, and the hook may use the group.
        let quiet = DeferForeignCode::begin();
        let ranks = {
            let mut kept = lock(&self.ranks);
            match &*kept {
                Some(ranks) if !ranks.is_aborted() => ranks.clone(),
                _ => {
                    let contexts = self.streams.iter().map(Stream::context);
                    kept.insert(Arc::new(Ranks::init_all(contexts)?)).clone()
                }
            }
        };
        drop(quiet);
        ranks.on(&self.streams).and_then(f)
    }
}
