//! Copies between the members.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::group::DeviceGroup;
use crate::group::round::{Round, run};
use crate::group::views::{parts, parts_mut};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, within};
use crate::stream::Stream;
use crate::types::Pod;

/// Bytes per simultaneous copy below which enqueuing the pieces of a broadcast takes longer than
/// copying them.
const LEAST: usize = 2 << 20;

/// The most pieces of a broadcast. The last member begins to receive when the first piece arrives.
const MOST: usize = 32;

/// # Between the devices
impl DeviceGroup {
    /// Copies the elements of the member `root` to all other members, whose buffers have the same
    /// length, asynchronously: `cuMemcpyPeerAsync`.
    ///
    /// Large buffers go from member to member in pieces, so that each member sends one piece while
    /// it receives the next. The whole takes a tenth (two H200s) to a fifth (four) longer than one
    /// copy. Small buffers spread as in a tree. Copies leave the multiprocessors to kernels, need
    /// no communicator, and on two H200s are a tenth faster than NCCL's broadcast, which is
    /// [`OnStreams::broadcast_in_place`](crate::nccl::OnStreams::broadcast_in_place).
    ///
    /// # Errors
    /// Before any driver call: [`Error::Invalid`] for a root that is not a member, and unless there
    /// is one buffer for each member, [`Error::WrongDevice`], and [`Error::LengthMismatch`] as
    /// [`Error::OnDevice`].
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut weights = group.alloc::<f32>(1 << 20)?;
    /// group.streams()[0].fill(&mut weights[0], 0.5)?;
    /// group.broadcast_in_place(&mut weights, 0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyPeerAsync", "cudaMemcpyPeerAsync"))]
    pub fn broadcast_in_place<'b, T: Pod>(
        &self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        root: usize,
    ) -> Result<()> {
        let op = "broadcast_in_place";
        let mut buffers = self.views(op, buffers, DeviceSliceMut::device)?;
        let count = self.len();
        within(op, "member", root, count)?;
        let len = buffers[root].len();
        for (rank, buffer) in buffers.iter().enumerate() {
            self.same_len_on(op, rank, len, buffer.len())?;
        }
        if count == 1 || buffers[root].byte_len() == 0 {
            return Ok(());
        }
        let wanted = buffers[root].byte_len() / (LEAST * (count - 1));
        let many = wanted.clamp(1, MOST).min(len);
        let hops = if many > 1 { chain(count) } else { tree(count) };
        let hops = hops.into_iter();
        let hops = hops.map(|(from, to)| ((root + from) % count, (root + to) % count));
        let hops: Vec<(usize, usize)> = hops.collect();

        let mut round = Round::new()?;
        for &(from, to) in &hops {
            let stream = &self.lanes[from];
            if from == root {
                round.will_touch(stream, buffers[from].as_view().read());
            }
            round.will_touch(stream, buffers[to].write());
        }
        round.begin()?;
        for piece in ranges(len, many) {
            for &(from, to) in &hops {
                let (source, destination) = two(&mut buffers, from, to);
                let source = source.as_view().slice(piece.clone())?;
                let destination = destination.slice_mut(piece.clone())?;
                // Waits for the piece to reach the sender, by an event that is recorded now on the
                // lane that brought it, before anything else is enqueued there.
                let copied = self.lanes[from].copy(source, destination);
                copied.map_err(|error| error.on(self.streams[from].device()))?;
            }
        }
        Ok(())
    }

    /// Copies each member's elements to the member that is `by` ranks further, counted in a circle,
    /// asynchronously and all at the same time: `cuMemcpyPeerAsync`. With 1 it is one step of a
    /// ring.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one source and one destination for each member,
    /// [`Error::WrongDevice`], and [`Error::LengthMismatch`] as [`Error::OnDevice`] of the
    /// receiver, before any driver call.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut parts = group.alloc_zeroed::<f32>(1 << 20)?;
    /// let mut next = group.alloc::<f32>(1 << 20)?;
    /// for _ in 1..group.len() {
    ///     group.rotate(&parts, &mut next, 1)?; // each to the next, the last to the first
    ///     std::mem::swap(&mut parts, &mut next);
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyPeerAsync", "cudaMemcpyPeerAsync"))]
    pub fn rotate<'a, 'b, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        by: usize,
    ) -> Result<()> {
        let op = "rotate";
        let sources = self.views(op, sources, DeviceSlice::device)?;
        let mut destinations = self.views(op, destinations, DeviceSliceMut::device)?;
        let step = by % self.len();
        destinations.rotate_left(step);
        let pairs = sources.into_iter().zip(destinations).enumerate();
        let copies = pairs.map(|(from, (source, destination))| {
            let to = (from + step) % self.len();
            self.same_len_on(op, to, source.len(), destination.len())?;
            Ok(((&self.lanes[from], source), destination))
        });
        run(copies.collect::<Result<Vec<_>>>()?, Stream::copy)
    }

    /// Cuts each member's elements into as many equal parts as there are members, and copies part *j*
    /// of member *i* to part *i* of member *j*, asynchronously and all at the same time:
    /// `cuMemcpyPeerAsync`. MPI calls this `MPI_Alltoall`; [`DeviceGroup::exchange`] takes parts of
    /// any length.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one source and one destination for each member, and for
    /// elements that cannot be divided equally, [`Error::WrongDevice`], and
    /// [`Error::LengthMismatch`] as [`Error::OnDevice`] of the receiver, before any driver call.
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// let sources = group.alloc_zeroed::<u32>(group.len() * 1000)?;
    /// let mut destinations = group.alloc::<u32>(group.len() * 1000)?;
    /// group.all_to_all(&sources, &mut destinations)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyPeerAsync", "cudaMemcpyPeerAsync"))]
    pub fn all_to_all<'a, 'b, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "all_to_all";
        let sources = self.views(op, sources, DeviceSlice::device)?;
        let destinations = self.views(op, destinations, DeviceSliceMut::device)?;
        let count = self.len();
        let lens = |len: usize| {
            let why = || format!("{len} elements cannot be cut into {count} equal parts");
            Error::unless_with(len % count == 0, op, why).map(|()| vec![len / count; count])
        };
        let sources = sources.into_iter();
        let sources: Result<_> = sources.map(|view| parts(view, lens(view.len())?)).collect();
        let destinations = destinations.into_iter().map(|view| {
            let lens = lens(view.len())?;
            parts_mut(view, lens)
        });
        self.cross(op, sources?, destinations.collect::<Result<_>>()?)
    }

    /// Copies what member *i* has for member *j*, `sources[i][j]`, to `destinations[j][i]`, for all
    /// members, asynchronously and all at the same time: `cuMemcpyPeerAsync`. Parts may differ in
    /// length, and be empty. MPI calls this `MPI_Alltoallv`.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless each list has one entry for each member, [`Error::WrongDevice`],
    /// and [`Error::LengthMismatch`] as [`Error::OnDevice`] of the receiver, before any driver
    /// call.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, DeviceGroup};
    /// let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
    /// # let (a, b) = (&group.streams()[0], &group.streams()[1]);
    /// // Two members: 10 elements from the first to the second, 20 back, nothing to themselves.
    /// let sources = [[a.alloc_zeroed::<u32>(0)?, a.alloc_zeroed(10)?], [b.alloc_zeroed(20)?, b.alloc_zeroed(0)?]];
    /// let mut destinations = [[a.alloc(0)?, a.alloc(20)?], [b.alloc(10)?, b.alloc(0)?]];
    /// group.exchange(&sources, &mut destinations)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyPeerAsync", "cudaMemcpyPeerAsync"))]
    pub fn exchange<'a, 'b, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>>,
        destinations: impl IntoIterator<
            Item = impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
        >,
    ) -> Result<()> {
        let op = "exchange";
        let sources: Vec<Vec<DeviceSlice<'a, T>>> =
            sources.into_iter().map(|row| row.into_iter().map(Into::into).collect()).collect();
        let destinations: Vec<Vec<DeviceSliceMut<'b, T>>> =
            destinations.into_iter().map(|row| row.into_iter().map(Into::into).collect()).collect();
        let outer = [sources.len(), destinations.len()];
        let rows = sources.iter().map(Vec::len);
        let rows = rows.chain(destinations.iter().map(Vec::len));
        outer.into_iter().chain(rows).try_for_each(|given| self.one_each(op, given))?;
        for (rank, row) in sources.iter().enumerate() {
            row.iter().try_for_each(|view| self.on_member(op, rank, view.device()))?;
        }
        for (rank, row) in destinations.iter().enumerate() {
            row.iter().try_for_each(|view| self.on_member(op, rank, view.as_view().device()))?;
        }
        self.cross(op, sources, destinations)
    }

    /// Runs the copies. Both lists have as many rows as there are members, and as many views in
    /// each, on the row's device.
    fn cross<T: Pod>(
        &self,
        op: &'static str,
        sources: Vec<Vec<DeviceSlice<'_, T>>>,
        destinations: Vec<Vec<DeviceSliceMut<'_, T>>>,
    ) -> Result<()> {
        let count = self.len();
        let mut copies = Vec::with_capacity(count * count);
        for (to, row) in destinations.into_iter().enumerate() {
            for (from, destination) in row.into_iter().enumerate() {
                let source = sources[from][to];
                self.same_len_on(op, to, source.len(), destination.len())?;
                let step = (count + to - from) % count;
                copies.push((step, to, ((&self.lanes[from], source), destination)));
            }
        }
        // In each step every member sends to one member and receives from one.
        copies.sort_unstable_by_key(|(step, to, _)| (*step, *to));
        run(copies.into_iter().map(|(.., copy)| copy), Stream::copy)
    }
}

/// Returns the copies (from, to), in order, by which rank 0 reaches all others: each member sends
/// to the next.
fn chain(count: usize) -> Vec<(usize, usize)> {
    (1..count).map(|to| (to - 1, to)).collect()
}

/// Returns the copies (from, to), in order, by which rank 0 reaches all others: in each step every
/// member that has the elements sends them to one that lacks them.
fn tree(count: usize) -> Vec<(usize, usize)> {
    let mut hops = Vec::with_capacity(count);
    let mut have = 1;
    while have < count {
        hops.extend((0..have.min(count - have)).map(|from| (from, have + from)));
        have *= 2;
    }
    hops
}

/// Divides `len` elements into `count` ranges whose lengths differ by at most one.
pub(super) fn ranges(len: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let bound = move |index: usize| {
        let more = index.min(len % count);
        len / count * index + more
    };
    (0..count).map(move |index| bound(index)..bound(index + 1))
}

/// Returns two different elements of `all`.
fn two<T>(all: &mut [T], one: usize, other: usize) -> (&mut T, &mut T) {
    if one < other {
        let (low, high) = all.split_at_mut(other);
        (&mut low[one], &mut high[0])
    } else {
        let (low, high) = all.split_at_mut(one);
        (&mut high[0], &mut low[other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_reached_once_by_one_that_has_the_bytes() {
        for count in 1..20 {
            for hops in [chain(count), tree(count)] {
                let mut have = vec![false; count];
                have[0] = true;
                for (from, to) in hops {
                    assert!(have[from] && !have[to], "{from} to {to} of {count}");
                    have[to] = true;
                }
                assert!(have.iter().all(|&has| has));
            }
        }
        assert_eq!(tree(8).len(), 7);
        assert_eq!(tree(8)[3..], [(0, 4), (1, 5), (2, 6), (3, 7)]);
    }

    #[test]
    fn ranges_cover_everything_once() {
        for (len, count) in [(10, 3), (3, 3), (32, 5), (1, 1)] {
            let all: Vec<_> = ranges(len, count).collect();
            assert_eq!(all.len(), count);
            assert_eq!((all[0].start, all[count - 1].end), (0, len));
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(all.iter().all(|range| range.len().abs_diff(len / count) <= 1));
        }
    }
}
