//! Contexts, the current context, and access between devices.

use cuda_core::{Context, ContextFlags, Device};
use proptest::prelude::*;

use super::MOST;
use crate::property::outcome::{Done, take};
use crate::property::program::device;
use crate::property::threads::Local;
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum ContextOp {
    Create { device: u8 },
    Drop { context: u8 },
    Enter { context: u8 },
    Leave { guard: u8, explicit: bool },
    ForgetGuard { guard: u8 },
    Push { context: u8 },
    SetCurrent { context: u8 },
    Synchronize { context: u8 },
    EnablePeer { from: u8, to: u8 },
    DisablePeer { pair: u8 },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = ContextOp> {
    let small = any::<u8>;
    prop_oneof![
        2 => device().prop_map(|device| ContextOp::Create { device }),
        2 => small().prop_map(|context| ContextOp::Drop { context }),
        2 => small().prop_map(|context| ContextOp::Enter { context }),
        2 => (small(), any::<bool>())
            .prop_map(|(guard, explicit)| ContextOp::Leave { guard, explicit }),
        2 => small().prop_map(|guard| ContextOp::ForgetGuard { guard }),
        2 => small().prop_map(|context| ContextOp::Push { context }),
        2 => small().prop_map(|context| ContextOp::SetCurrent { context }),
        1 => small().prop_map(|context| ContextOp::Synchronize { context }),
        2 => (small(), small()).prop_map(|(from, to)| ContextOp::EnablePeer { from, to }),
        1 => small().prop_map(|pair| ContextOp::DisablePeer { pair }),
    ]
}

impl ContextOp {
    /// Returns whether a failure may leave the current context changed.
    pub(in crate::property) fn changes_current(&self) -> bool {
        use ContextOp::{Enter, Leave, Push, SetCurrent};
        matches!(self, Enter { .. } | Leave { .. } | Push { .. } | SetCurrent { .. })
    }
}

impl World {
    pub(in crate::property) fn context(&self, index: u8) -> Context {
        self.contexts[usize::from(index) % self.contexts.len()].clone()
    }

    pub(super) fn contexts(&mut self, op: ContextOp, local: &mut Local) -> Done {
        match op {
            ContextOp::Create { device } => {
                if self.contexts.len() < MOST {
                    let device = Device::get(u32::from(device))?;
                    self.contexts.push(Context::new(device, ContextFlags::SCHED_AUTO)?);
                }
            }
            ContextOp::Drop { context } => {
                if self.contexts.len() > 1 {
                    drop(take(&mut self.contexts, context));
                }
            }
            ContextOp::Enter { context } => local.enter(&self.context(context))?,
            ContextOp::Leave { guard, explicit } => {
                if local.has_guards() {
                    local.leave(guard, explicit)?;
                }
            }
            ContextOp::ForgetGuard { guard } => {
                if local.has_guards() {
                    local.forget(guard);
                    self.forgotten.enter();
                }
            }
            ContextOp::Push { context } => local.push(&self.context(context))?,
            ContextOp::SetCurrent { context } => local.set_current(&self.context(context))?,
            ContextOp::Synchronize { context } => self.context(context).synchronize()?,
            ContextOp::EnablePeer { from, to } => {
                let (from, to) = (self.context(from), self.context(to));
                if from.device() != to.device() {
                    from.enable_peer_access(&to)?;
                    let pair = (from, to);
                    if !self.peers.contains(&pair) {
                        self.peers.push(pair);
                    }
                }
            }
            ContextOp::DisablePeer { pair } => {
                if let Some((from, to)) = take(&mut self.peers, pair) {
                    from.disable_peer_access(&to)?;
                }
            }
        }
        Ok(())
    }
}
