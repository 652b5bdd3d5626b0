//! The memory of a program with graphs, and the operations on it.

use std::ops::Range;

use cuda_core::{
    Buffer, DeviceMemory, DeviceSlice, DeviceSliceMut, GraphExec, Memory, NodeId, PinnedMemory,
    PinnedSlice, PinnedSliceMut, Result, Slice, SliceMut, Stream,
};

use super::program::{Kind, Work};
use crate::property::outcome::{Contents, Done, alike, pick, same, two};

/// The number of elements of a buffer.
pub(super) const LEN: usize = 32;

/// All memory, with the model of its contents.
#[derive(Default)]
pub(super) struct Memories {
    pub(super) device: Vec<Held<DeviceMemory>>,
    pub(super) pinned: Vec<Held<PinnedMemory>>,
    /// Contents by number, also of dropped buffers that graphs still use.
    contents: Vec<Contents>,
    /// Whether the memory is of the driver's pool, by number.
    pooled: Vec<bool>,
}

pub(super) struct Held<M: Memory> {
    number: usize,
    pub(super) buffer: Buffer<u8, M>,
}

/// An operation on the memory with these numbers.
#[derive(Clone)]
pub(super) struct Op {
    pub(super) work: Work,
    from: usize,
    to: usize,
}

/// The memory for an operation that is about to be enqueued.
pub(super) enum Views<'a> {
    Fill(DeviceSliceMut<'a, u8>, u8),
    Copy(DeviceSlice<'a, u8>, DeviceSliceMut<'a, u8>),
    Upload(PinnedSlice<'a, u8>, DeviceSliceMut<'a, u8>),
    Download(DeviceSlice<'a, u8>, PinnedSliceMut<'a, u8>),
}

impl Memories {
    /// Adds a buffer that is filled with the value.
    pub(super) fn hold<M: Memory>(
        &mut self,
        buffer: Buffer<u8, M>,
        value: u8,
        is_pooled: bool,
    ) -> Held<M> {
        self.contents.push(vec![Some(value); LEN]);
        self.pooled.push(is_pooled);
        Held { number: self.contents.len() - 1, buffer }
    }

    /// Returns the operation on what its numbers select, or none if there is no such memory, or nothing to
    /// do.
    pub(super) fn choose(&mut self, work: Work) -> Option<(Op, Views<'_>)> {
        let Self { device, pinned, .. } = self;
        let (first, second) = (work.on.from.buffer, work.on.to.buffer);
        let (range, to_range) = work.ranges();
        if range.is_empty() {
            return None;
        }
        let ((from, to), views) = match work.kind {
            Kind::Fill => {
                let to = pick(device, second)?;
                ((to.number, to.number), Views::Fill(to.part_mut(to_range), work.on.value))
            }
            Kind::Copy => {
                let (from, to) = two(device, first, second)?;
                ((from.number, to.number), Views::Copy(from.part(range), to.part_mut(to_range)))
            }
            Kind::Upload => {
                let (from, to) = (pick(pinned, first)?, pick(device, second)?);
                ((from.number, to.number), Views::Upload(from.part(range), to.part_mut(to_range)))
            }
            Kind::Download => {
                let (from, to) = (pick(device, first)?, pick(pinned, second)?);
                ((from.number, to.number), Views::Download(from.part(range), to.part_mut(to_range)))
            }
        };
        Some((Op { work, from, to }, views))
    }

    /// Whether a copy can become another one, or a fill another fill: memory of the driver's pool takes the
    /// place of no other memory in a copy.
    pub(super) fn can_replace(&self, old: &Op, new: &Op) -> bool {
        let pooled = |op: &Op| (self.pooled[op.from], self.pooled[op.to]);
        matches!(old.work.kind, Kind::Fill) || pooled(old) == pooled(new)
    }

    /// Applies an operation to the model.
    pub(super) fn apply(&mut self, op: &Op) {
        let (from, to) = op.work.ranges();
        let new = match op.work.kind {
            Kind::Fill => vec![Some(op.work.on.value); to.len()],
            _ => self.contents[op.from][from].to_vec(),
        };
        self.contents[op.to][to].copy_from_slice(&new);
    }

    pub(super) fn compare(&self, stream: &Stream, held: &Held<DeviceMemory>) -> Done {
        Ok(same(&stream.download_vec(&held.buffer)?, &self.contents[held.number])?)
    }

    pub(super) fn compare_pinned(&self, held: &Held<PinnedMemory>) -> Done {
        Ok(same(held.buffer.as_slice()?, &self.contents[held.number])?)
    }
}

impl<M: Memory> Held<M> {
    pub(super) fn is(&self, number: usize) -> bool {
        self.number == number
    }

    fn part(&self, range: Range<usize>) -> Slice<'_, u8, M> {
        self.buffer.slice(range).expect("a range within it")
    }

    fn part_mut(&mut self, range: Range<usize>) -> SliceMut<'_, u8, M> {
        self.buffer.slice_mut(range).expect("a range within it")
    }
}

impl Work {
    /// Returns the ranges that it reads and writes.
    fn ranges(&self) -> (Range<usize>, Range<usize>) {
        alike(self.on.from.of(LEN), self.on.to.of(LEN))
    }
}

impl Op {
    /// Returns the number of the pinned memory that it uses.
    pub(super) fn pinned(&self) -> Option<usize> {
        match self.work.kind {
            Kind::Fill | Kind::Copy => None,
            Kind::Upload => Some(self.from),
            Kind::Download => Some(self.to),
        }
    }
}

impl Views<'_> {
    pub(super) fn enqueue(self, stream: &Stream) -> Result<()> {
        match self {
            Self::Fill(to, value) => stream.fill(to, value),
            Self::Copy(from, to) => stream.copy(from, to),
            Self::Upload(from, to) => stream.upload(from, to),
            Self::Download(from, to) => stream.download(from, to),
        }
    }

    /// Changes a node of an executable to this operation.
    pub(super) fn set(self, exec: &mut GraphExec, node: NodeId) -> Result<()> {
        match self {
            Self::Fill(to, value) => exec.set_fill(node, to, value),
            Self::Copy(from, to) => exec.set_copy(node, from, to),
            Self::Upload(from, to) => exec.set_copy(node, from, to),
            Self::Download(from, to) => exec.set_copy(node, from, to),
        }
    }
}
