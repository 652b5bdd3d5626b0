//! Values besides memory that a capture keeps for the graph.

use std::sync::Arc;

use super::{CopiesBetween, GraphTraits, KeptAlive, OpenRecording, Reached, Recording};
use crate::error::{Error, Result};
use crate::timeline::Timeline;

/// The values besides memory that a graph keeps for an operation, and the operation's demands on launches.
/// Noted when the graph has the operation, and dropped if the operation is refused.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) traits: GraphTraits,
    /// Kept alive while the graph may run.
    pub(crate) owners: Vec<Arc<dyn KeptAlive>>,
    /// A value that several operations keep, with its key: only one is kept for each key.
    pub(crate) once: Option<(usize, Arc<dyn KeptAlive>)>,
    /// Memory of other devices that a kernel reaches. Without the peer access that it needs, the graph is
    /// neither instantiated nor launched; each launch holds the existing access.
    pub(crate) reached: Vec<Reached>,
    pub(crate) copies: Vec<CopiesBetween>,
}

impl Notes {
    pub(crate) fn keeping(traits: GraphTraits, owner: Arc<dyn KeptAlive>) -> Self {
        Self { traits, owners: vec![owner], ..Self::default() }
    }
}

impl OpenRecording {
    /// Takes over the notes of an operation that the graph has.
    pub(super) fn keep(&mut self, notes: Notes) {
        self.uses.traits.add(notes.traits);
        self.uses.owners.0.extend(notes.owners);
        if let Some((key, owner)) = notes.once {
            self.keep_once(key, || owner);
        }
        for reached in notes.reached {
            if !self.reached.contains(&reached) {
                self.reached.push(reached.clone());
                self.uses.owners.0.push(Arc::new(reached));
                self.uses.traits.add(GraphTraits::MAY_BE_REFUSED);
            }
        }
        notes.copies.into_iter().for_each(|copies| self.uses.note_copies(copies));
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
        if let Some(recorded) = self.lock().recorded.as_mut() {
            recorded.uses.streams.push(stream.id());
        }
    }

    /// Keeps a value while the graph may run, only one for each key.
    pub(crate) fn keep_once(&self, key: usize, owner: impl FnOnce() -> Arc<dyn KeptAlive>) {
        if let Some(recorded) = self.lock().recorded.as_mut() {
            recorded.keep_once(key, owner);
        }
    }
}
