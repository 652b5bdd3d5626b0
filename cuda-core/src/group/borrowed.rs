//! Borrowed slices and all devices, through pinned chunks of the group's own.

use std::mem;

use crate::copy::same_len;
use crate::error::Result;
use crate::group::DeviceGroup;
use crate::group::relay::{CHUNK, Landing, Load, Unload};
use crate::group::views::{parts, parts_mut, pieces, total};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::pod::{Pod, bytes_of, bytes_of_mut};
use crate::memory::view::{Slice, SliceMut};

/// Bytes up to which each stream stages its own copy: that is quicker than having a chunk of which
/// little is used.
const SMALL: usize = 64 << 10;

impl DeviceGroup {
    /// Copies a borrowed slice to every device. Returns as soon as the bytes are staged in pinned
    /// memory: the slice may be changed at once.
    ///
    /// The slice is read once, however many devices there are: each pinned chunk is uploaded to all
    /// of them before it is filled again. Several threads fill the chunks of a large slice.
    ///
    /// # Errors
    /// As [`DeviceGroup::upload_all`]. After a failure of the driver destinations may be written in
    /// part.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut copies = group.alloc(3)?;
    /// group.upload_all_from(&[1u32, 2, 3], &mut copies)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upload_all_from<'b, T: Pod>(
        &self,
        source: &[T],
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "upload_all_from";
        let destinations = self.destinations(op, destinations)?;
        for (rank, destination) in destinations.iter().enumerate() {
            self.same_len_on(op, rank, source.len(), destination.len())?;
        }
        if size_of_val(source) <= SMALL {
            return self.upload_each(destinations.into_iter().map(|to| (source, to)));
        }
        let bytes = bytes_of(source);
        let mut loads: Vec<_> = bytes.chunks(CHUNK).map(load_of).collect();
        for (stream, destination) in self.streams.iter().zip(destinations) {
            let destination = destination.cast::<u8>()?;
            let pieces = parts_mut(destination, pieces(bytes.len(), CHUNK))?;
            for (load, piece) in loads.iter_mut().zip(pieces) {
                load.to.push((stream, piece));
            }
        }
        let context = self.streams[0].context();
        self.relay.carry_up(context, loads.into_iter())
    }

    /// Copies the first elements of a borrowed slice to the first device, those that follow to the
    /// second, and so on: [`DeviceGroup::scatter`] through pinned chunks, to all devices at the same
    /// time. Returns as soon as the bytes are staged.
    ///
    /// # Errors
    /// As [`DeviceGroup::scatter`]. After a failure of the driver destinations may be written in part.
    pub fn scatter_from<'b, T: Pod>(
        &self,
        source: &[T],
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "scatter_from";
        let destinations = self.destinations(op, destinations)?;
        let lens = destinations.iter().map(SliceMut::len);
        same_len(op, source.len(), total::<T>(lens)?)?;
        let mut rest = source;
        let with_source = destinations.into_iter().map(|destination| {
            let (part, behind) = rest.split_at(destination.len());
            rest = behind;
            (part, destination)
        });
        if size_of_val(source) <= SMALL {
            return self.upload_each(with_source);
        }
        let mut loads = Vec::new();
        for (stream, (part, destination)) in self.streams.iter().zip(with_source) {
            let bytes = bytes_of(part);
            let destination = destination.cast::<u8>()?;
            let pieces = parts_mut(destination, pieces(bytes.len(), CHUNK))?;
            for (index, (bytes, piece)) in bytes.chunks(CHUNK).zip(pieces).enumerate() {
                let mut load = load_of(bytes);
                load.to.push((stream, piece));
                loads.push((index, load));
            }
        }
        // All devices receive at the same time: first the beginnings of all parts.
        loads.sort_by_key(|(index, _)| *index);
        let context = self.streams[0].context();
        let loads = loads.into_iter().map(|(_, load)| load);
        self.relay.carry_up(context, loads)
    }

    /// Copies each device's elements to where they belong in a borrowed slice, and waits for them:
    /// [`DeviceGroup::gather`] through pinned chunks, from all devices at the same time.
    ///
    /// # Errors
    /// As [`DeviceGroup::gather`]. After a failure of the driver the slice may be written in part.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut shares = group.alloc_shares(1000)?;
    /// group.scatter_from(&[7u32; 1000], &mut shares)?;
    /// let mut back = [0; 1000];
    /// group.gather_to(&shares, &mut back)?; // waits
    /// assert_eq!(back, [7; 1000]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn gather_to<'a, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl Into<DeviceSlice<'a, T>>>,
        destination: &mut [T],
    ) -> Result<()> {
        let op = "gather_to";
        let sources = self.sources(op, sources)?;
        let lens = sources.iter().map(Slice::len);
        same_len(op, total::<T>(lens)?, destination.len())?;
        let all = size_of_val(destination);
        let mut rest = bytes_of_mut(destination);
        let mut loads = Vec::new();
        for (stream, source) in self.streams.iter().zip(sources) {
            let (part, behind) = mem::take(&mut rest).split_at_mut(source.byte_len());
            rest = behind;
            let pieces = parts(source.cast::<u8>()?, pieces(part.len(), CHUNK))?;
            for (index, (bytes, from)) in part.chunks_mut(CHUNK).zip(pieces).enumerate() {
                loads.push((index, (from, Landing { stream, bytes })));
            }
        }
        // All devices send at the same time: first the beginnings of all parts.
        loads.sort_by_key(|(index, _)| *index);
        let loads = loads.into_iter().map(|(_, load)| load);
        let loads: Vec<_> = match all {
            0 => Vec::new(),
            1..=CHUNK => vec![Unload(loads.collect())],
            _ => loads.map(|load| Unload(vec![load])).collect(),
        };
        let context = self.streams[0].context();
        self.relay.carry_down(context, loads.into_iter())
    }

    /// One slice to each member.
    fn upload_each<'a, 'b, T: Pod>(
        &self,
        copies: impl Iterator<Item = (&'a [T], DeviceSliceMut<'b, T>)>,
    ) -> Result<()> {
        self.streams
            .iter()
            .zip(copies)
            .try_for_each(|(stream, (source, destination))| {
                let uploaded = stream.upload_from(source, destination);
                uploaded.map_err(|error| error.on(stream.device()))
            })
    }
}

fn load_of<'g, 'a, 'b>(bytes: &'a [u8]) -> Load<'g, 'a, 'b> {
    Load {
        bytes,
        to: Vec::new(),
    }
}
