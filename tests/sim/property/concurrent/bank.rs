//! Memory of one kind that a thread owns.

use cuda_core::{Buffer, Memory, Slice, SliceMut};

use crate::property::outcome::{Contents, take};

/// The most buffers that a thread may have.
const MOST: usize = 4;

/// The thread's part of a shared buffer, and buffers of its own, with the model of their contents.
pub(super) struct Bank<'a, M: Memory> {
    part: (SliceMut<'a, u8, M>, Contents),
    own: Vec<Owned<M>>,
}

pub(super) type Owned<M> = (Buffer<u8, M>, Contents);

/// The memory that a number selects.
enum Which {
    Part,
    Own(usize),
    Shared,
}

impl<'a, M: Memory> Bank<'a, M> {
    /// Creates a bank with a part that is zero.
    pub(super) fn new(part: SliceMut<'a, u8, M>) -> Self {
        let contents = vec![Some(0); part.len()];
        Self { part: (part, contents), own: Vec::new() }
    }

    pub(super) fn has_room(&self) -> bool {
        self.own.len() < MOST
    }

    pub(super) fn add(&mut self, owned: impl IntoIterator<Item = Owned<M>>) {
        self.own.extend(owned);
    }

    pub(super) fn take(&mut self, number: u8) -> Option<Owned<M>> {
        take(&mut self.own, number)
    }

    pub(super) fn own(&self) -> &[Owned<M>] {
        &self.own
    }

    /// Returns the model of the thread's part.
    pub(super) fn into_contents(self) -> Contents {
        self.part.1
    }

    /// Returns memory to read: the thread's own, or that which all threads read.
    pub(super) fn source<'b>(
        &'b self,
        shared: &'b Owned<M>,
        number: u8,
    ) -> (Slice<'b, u8, M>, &'b Contents) {
        match self.which(number, true) {
            Which::Part => (self.part.0.as_view(), &self.part.1),
            Which::Own(at) => (self.own[at].0.as_view(), &self.own[at].1),
            Which::Shared => (shared.0.as_view(), &shared.1),
        }
    }

    /// Returns memory to write.
    pub(super) fn target(&mut self, number: u8) -> (SliceMut<'_, u8, M>, &mut Contents) {
        match self.which(number, false) {
            Which::Part | Which::Shared => (self.part.0.reborrow(), &mut self.part.1),
            Which::Own(at) => {
                let (buffer, contents) = &mut self.own[at];
                (buffer.as_view_mut(), contents)
            }
        }
    }

    /// Returns memory to read, and other memory to write.
    #[allow(clippy::type_complexity, reason = "two pairs, each used immediately")]
    pub(super) fn both<'b>(
        &'b mut self,
        shared: &'b Owned<M>,
        from: u8,
        to: u8,
    ) -> Option<((Slice<'b, u8, M>, &'b Contents), (SliceMut<'b, u8, M>, &'b mut Contents))> {
        let (from, to) = (self.which(from, true), self.which(to, false));
        let (part, part_contents) = &mut self.part;
        Some(match (from, to) {
            (Which::Shared, Which::Own(to)) => {
                let (target, contents) = &mut self.own[to];
                ((shared.0.as_view(), &shared.1), (target.as_view_mut(), contents))
            }
            (Which::Shared, _) => {
                ((shared.0.as_view(), &shared.1), (part.reborrow(), part_contents))
            }
            (Which::Part, Which::Own(to)) => {
                let (target, contents) = &mut self.own[to];
                ((part.as_view(), part_contents), (target.as_view_mut(), contents))
            }
            (Which::Own(from), Which::Own(to)) if from == to => return None,
            (Which::Own(from), Which::Own(to)) => {
                let (low, high) = self.own.split_at_mut(from.max(to));
                let (a, b) = (&mut low[from.min(to)], &mut high[0]);
                let (source, target) = if from < to { (a, b) } else { (b, a) };
                ((source.0.as_view(), &source.1), (target.0.as_view_mut(), &mut target.1))
            }
            (Which::Own(from), _) => {
                let (source, known) = &self.own[from];
                ((source.as_view(), known), (part.reborrow(), part_contents))
            }
            (Which::Part, _) => return None,
        })
    }

    fn which(&self, number: u8, shared: bool) -> Which {
        let own = self.own.len();
        match usize::from(number) % (own + 1 + usize::from(shared)) {
            0 => Which::Part,
            at if at <= own => Which::Own(at - 1),
            _ => Which::Shared,
        }
    }
}
