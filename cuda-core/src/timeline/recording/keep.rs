//! Values besides memory that a capture keeps for the graph.

use std::sync::Arc;

use super::{
    CopiesBetween, GraphOwners, GraphTraits, KeptAlive, OpenRecording, Reached, Recording,
};
use crate::error::{Error, Result};
use crate::timeline::Timeline;

/// The values besides memory that a graph keeps for an operation, and the operation's demands on launches.
/// Noted when the graph has the operation, and dropped if the operation is refused. Boxed, since most
/// operations have none.
#[derive(Default)]
pub(crate) struct Notes(Box<NoteFields>);

#[derive(Default)]
struct NoteFields {
    traits: GraphTraits,
    owners: GraphOwners,
    /// Kept once for each key.
    once: Option<(usize, Arc<dyn KeptAlive>)>,
    /// Memory of other devices that a kernel reaches. Without the peer access that it needs, the graph is
    /// neither instantiated nor launched; each launch holds the existing access.
    reached: Vec<Reached>,
    copies: Vec<CopiesBetween>,
}

impl Notes {
    #[cold]
    pub(crate) fn of(traits: GraphTraits) -> Self {
        Self(Box::new(NoteFields { traits, ..NoteFields::default() }))
    }

    /// Notes of an operation that all later ones depend on, whatever memory they use.
    pub(crate) fn of_barrier(mut traits: GraphTraits) -> Self {
        traits.add(GraphTraits::BARRIER);
        Self::of(traits)
    }

    /// Notes of copies between devices.
    #[cold]
    pub(crate) fn of_copies(copies: impl IntoIterator<Item = CopiesBetween>) -> Self {
        let mut notes = Self::default();
        notes.0.copies.extend(copies);
        notes
    }

    /// Adds a value that is kept alive while the graph may run.
    pub(crate) fn keep(mut self, owner: Arc<dyn KeptAlive>) -> Self {
        self.0.owners.0.push(owner);
        self
    }

    /// [`Notes::keep`] for a value that several operations keep: only one is kept for each key.
    pub(crate) fn keep_once(mut self, key: usize, owner: Arc<dyn KeptAlive>) -> Self {
        self.0.once = Some((key, owner));
        self
    }

    /// Adds the memory of other devices that a kernel reaches.
    pub(crate) fn reach(mut self, reached: Vec<Reached>) -> Self {
        self.0.reached = reached;
        self
    }

    pub(super) fn traits(&self) -> GraphTraits {
        self.0.traits
    }
}

impl OpenRecording {
    /// Takes over the notes of an operation that the graph has.
    pub(super) fn keep(&mut self, Notes(mut notes): Notes) {
        self.uses.traits.add(notes.traits);
        self.uses.owners.0.append(&mut notes.owners.0);
        if let Some((key, owner)) = notes.once.take() {
            self.keep_once(key, || owner);
        }
        for reached in notes.reached.drain(..) {
            if !self.reached.contains(&reached) {
                self.reached.push(reached.clone());
                self.uses.owners.0.push(Arc::new(reached));
                self.uses.traits.add(GraphTraits::MAY_BE_REFUSED);
            }
        }
        notes.copies.drain(..).for_each(|copies| self.uses.note_copies(copies));
    }

    fn keep_once(&mut self, key: usize, owner: impl FnOnce() -> Arc<dyn KeptAlive>) {
        if self.kept_once.insert(key, ()).is_none() {
            self.uses.owners.0.push(owner());
        }
    }
}

impl Recording {
    /// Returns an error for operations that the body of a condition cannot have.
    pub(crate) fn require_can_hold(&self, op: &'static str, traits: GraphTraits) -> Result<()> {
        let refused = traits.has(GraphTraits::EVENT) && self.outer.is_some();
        if refused { Err(Error::NotCapturable { op }) } else { Ok(()) }
    }

    /// Gives a stream of the capture the next number.
    pub(crate) fn number(&self, stream: &Timeline) {
        if let Some(recorded) = self.lock().as_mut() {
            recorded.uses.streams.push(stream.id());
        }
    }

    /// Keeps a value while the graph may run, only one for each key.
    pub(crate) fn keep_once(&self, key: usize, owner: impl FnOnce() -> Arc<dyn KeptAlive>) {
        if let Some(recorded) = self.lock().as_mut() {
            recorded.keep_once(key, owner);
        }
    }
}
