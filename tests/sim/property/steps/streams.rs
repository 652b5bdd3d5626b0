//! Streams, events and signals are created and dropped.

use cuda_core::{Device, Event, EventFlags, Signal, Stream};
use proptest::prelude::*;

use super::MOST;
use crate::property::outcome::{Done, take};
use crate::property::program::{On, on};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum StreamOp {
    Create { context: u8, blocking: bool },
    Drop { stream: u8, explicit: bool },
    Wait { stream: On, other: On },
    CreateEvent { context: u8 },
    DropEvent { event: u8, explicit: bool },
    CreateSignal { device: u8 },
    DropSignal { signal: u8 },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = StreamOp> {
    let small = any::<u8>;
    let flag = any::<bool>;
    prop_oneof![
        4 => (small(), flag())
            .prop_map(|(context, blocking)| StreamOp::Create { context, blocking }),
        4 => (small(), flag()).prop_map(|(stream, explicit)| StreamOp::Drop { stream, explicit }),
        2 => (on(), on()).prop_map(|(stream, other)| StreamOp::Wait { stream, other }),
        1 => small().prop_map(|context| StreamOp::CreateEvent { context }),
        1 => (small(), flag())
            .prop_map(|(event, explicit)| StreamOp::DropEvent { event, explicit }),
        1 => (0..4u8).prop_map(|device| StreamOp::CreateSignal { device }),
        1 => small().prop_map(|signal| StreamOp::DropSignal { signal }),
    ]
}

impl World {
    pub(in crate::property) fn created(&mut self, index: u8) -> cuda_core::Result<Stream> {
        if self.streams.is_empty() {
            self.streams.push(self.contexts[0].create_stream()?);
        }
        Ok(self.streams[usize::from(index) % self.streams.len()].clone())
    }

    /// Operations of streams beside waits for each other.
    pub(super) fn streams(&mut self, op: StreamOp) -> Done {
        match op {
            StreamOp::Create { context, blocking } => {
                let context = self.context(context);
                let builder = context.stream_builder();
                let builder = if blocking { builder.blocking() } else { builder };
                self.streams.push(builder.build()?);
            }
            StreamOp::Drop { stream, explicit } => match take(&mut self.streams, stream) {
                Some(stream) if explicit => stream.close()?,
                other => drop(other),
            },
            StreamOp::Wait { .. } => {}
            StreamOp::CreateEvent { context } => {
                if self.events.len() < MOST {
                    let event = Event::new(&self.context(context), EventFlags::DISABLE_TIMING)?;
                    self.events.push(event);
                }
            }
            StreamOp::DropEvent { event, explicit } => match take(&mut self.events, event) {
                Some(event) if explicit => event.close()?,
                other => drop(other),
            },
            StreamOp::CreateSignal { device } => {
                if self.signals.len() < MOST {
                    let device = Device::get(u32::from(device))?;
                    self.signals.push(Signal::new(&device.context()?, 0)?);
                }
            }
            StreamOp::DropSignal { signal } => drop(take(&mut self.signals, signal)),
        }
        Ok(())
    }
}
