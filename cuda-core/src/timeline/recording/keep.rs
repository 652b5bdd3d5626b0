//! What a capture keeps for the graph besides memory.

use std::sync::Arc;

use super::{GraphTraits, KeptAlive, Recording};
use crate::error::{Error, Result};
use crate::timeline::Timeline;

impl Recording {
    /// Keeps a function of the host, or an event, for as long as the graph may run.
    pub(crate) fn keep_owner(
        &self,
        op: &'static str,
        owner: Arc<dyn KeptAlive>,
        traits: GraphTraits,
    ) -> Result<()> {
        let mut guard = self.lock();
        let uses = &mut self.open(op, &mut guard)?.uses;
        self.require_can_hold(op, traits)?;
        uses.owners.0.push(owner);
        uses.traits.add(traits);
        Ok(())
    }

    /// Refuses what the body of a condition cannot have.
    pub(super) fn require_can_hold(&self, op: &'static str, traits: GraphTraits) -> Result<()> {
        let refused = traits.has(GraphTraits::EVENT) && self.outer.is_some();
        if refused { Err(Error::NotCapturable { op }) } else { Ok(()) }
    }

    /// Notes a trait of an operation that is captured.
    pub(crate) fn note_trait(&self, new: GraphTraits) {
        if let Some(recorded) = self.lock().as_mut() {
            recorded.uses.traits.add(new);
        }
    }

    /// Gives a stream of the capture the next number.
    pub(crate) fn number(&self, stream: &Timeline) {
        if let Some(recorded) = self.lock().as_mut() {
            recorded.uses.streams.push(stream.id());
        }
    }

    /// Keeps a value for as long as the graph may run: one for each key.
    pub(crate) fn keep_once<T>(&self, key: usize, owner: impl FnOnce() -> T)
    where
        T: KeptAlive + 'static,
    {
        if let Some(recorded) = self.lock().as_mut() {
            if recorded.kept_once.insert(key, ()).is_none() {
                recorded.uses.owners.0.push(Arc::new(owner()));
            }
        }
    }
}
