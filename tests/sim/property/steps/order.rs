//! Operations of a stream that move no data: marks, waits, host functions.

use cuda_core::{Stream, StreamKind};
use proptest::prelude::*;

use crate::property::outcome::{Departure, Done, pick};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum Ordering {
    Checkpoint,
    Synchronize,
    Query,
    HostFunction,
    RecordEvent { event: u8 },
    WaitEvent { event: u8 },
    WriteSignal { signal: u8 },
}

pub(in crate::property) fn work() -> impl Strategy<Value = Ordering> {
    prop_oneof![
        Just(Ordering::Checkpoint),
        Just(Ordering::Synchronize),
        Just(Ordering::Query),
        Just(Ordering::HostFunction),
        any::<u8>().prop_map(|event| Ordering::RecordEvent { event }),
        any::<u8>().prop_map(|event| Ordering::WaitEvent { event }),
        any::<u8>().prop_map(|signal| Ordering::WriteSignal { signal }),
    ]
}

/// The value that streams write into signals.
const WRITTEN: u32 = 0x5eed_5eed;

impl World {
    pub(super) fn order<K: StreamKind>(&mut self, stream: &Stream<K>, work: Ordering) -> Done {
        match work {
            Ordering::Checkpoint => stream.checkpoint()?,
            Ordering::Synchronize => stream.synchronize()?,
            Ordering::Query => drop(stream.query()?),
            Ordering::HostFunction => stream.launch_host_func(self.calls.next(stream.id()))?,
            Ordering::RecordEvent { event } => {
                if let Some(event) = pick(&mut self.events, event) {
                    if event.context() == stream.context() {
                        event.record(stream)?;
                    }
                }
            }
            Ordering::WaitEvent { event } => {
                if let Some(event) = pick(&mut self.events, event) {
                    stream.wait_event(event)?;
                }
            }
            Ordering::WriteSignal { signal } => {
                if let Some(signal) = pick(&mut self.signals, signal) {
                    stream.write_signal(signal, WRITTEN)?;
                    if ![0, WRITTEN].contains(&signal.get()) {
                        let wrong = format!("a signal is {:#x}", signal.get());
                        return Err(Departure::Wrong(wrong));
                    }
                }
            }
        }
        Ok(())
    }
}
