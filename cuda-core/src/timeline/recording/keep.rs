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
        if !self.can_hold(traits) {
            return Err(Error::NotCapturable { op });
        }
        uses.owners.push(owner);
        uses.traits = uses.traits.or(traits);
        Ok(())
    }

    pub(super) fn can_hold(&self, traits: GraphTraits) -> bool {
        !traits.is_not_for_bodies || self.outer.is_none()
    }

    /// Notes that a kernel has a priority of its own.
    pub(crate) fn note_priority(&self) {
        if let Some(recorded) = self.lock().as_mut() {
            recorded.uses.traits.has_priorities = true;
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
                recorded.uses.owners.push(Arc::new(owner()));
            }
        }
    }
}
