//! Memory is dropped, on any thread and in any way, or forgotten.

use std::thread;

use cuda_core::{Error, Rejected, Stream, StreamKind};
use proptest::prelude::*;

use crate::property::outcome::{Departure, Done, same, take};
use crate::property::program::{On, on};
use crate::property::world::World;
use crate::property::world::memory::{Held, OfDevice, OfHost};

#[derive(Debug, Clone)]
pub(in crate::property) struct DropOp {
    pub(in crate::property) which: Which,
    pub(in crate::property) how: How,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::property) enum Which {
    Device(u8),
    Host(u8),
}

#[derive(Debug, Clone, Copy)]
pub(in crate::property) enum How {
    Here,
    /// By `close`, or by `into_inner`, which returns the bytes.
    Explicitly,
    OnAnotherThread,
    HostFunction(On),
    Forget,
}

pub(in crate::property) fn ops() -> impl Strategy<Value = DropOp> {
    let which = prop_oneof![
        3 => any::<u8>().prop_map(Which::Device),
        2 => any::<u8>().prop_map(Which::Host),
    ];
    let how = prop_oneof![
        3 => Just(How::Here),
        2 => Just(How::Explicitly),
        1 => Just(How::OnAnotherThread),
        1 => on().prop_map(How::HostFunction),
        1 => Just(How::Forget),
    ];
    (which, how).prop_map(|(which, how)| DropOp { which, how })
}

/// The kinds of values that a program drops.
enum Gone {
    Device(Held<OfDevice>),
    Host(Held<OfHost>),
}

impl World {
    fn take(&mut self, which: Which) -> Option<Gone> {
        match which {
            Which::Device(number) => take(&mut self.device, number).map(Gone::Device),
            Which::Host(number) => take(&mut self.host, number).map(Gone::Host),
        }
    }

    /// Launches a host function that owns the memory, or owns nothing if there is no such memory.
    pub(super) fn drop_in_host_function<K: StreamKind>(
        &mut self,
        stream: &Stream<K>,
        which: Which,
    ) -> Done {
        let call = self.calls.next(stream.id());
        let gone = self.take(which);
        stream.launch_host_func(move || {
            call();
            drop(gone);
        })?;
        Ok(())
    }

    pub(super) fn drops(&mut self, which: Which, how: How) -> Done {
        let Some(gone) = self.take(which) else {
            return Ok(());
        };
        match how {
            How::Explicitly => return gone.close(),
            How::OnAnotherThread => {
                let dropped = thread::spawn(move || drop(gone)).join();
                dropped.map_err(|_| Departure::Wrong("a drop panicked".to_owned()))?;
            }
            How::Forget => match gone {
                Gone::Device(held) => self.forgotten.device.push(held),
                Gone::Host(held) => self.forgotten.host.push(held),
            },
            How::Here | How::HostFunction(_) => drop(gone),
        }
        Ok(())
    }
}

impl Gone {
    fn close(self) -> Done {
        fn error<T>(rejected: Rejected<T>) -> Error {
            rejected.error
        }
        match self {
            Self::Device(held) => match held.memory {
                OfDevice::Plain(buffer) => buffer.close().map_err(error)?,
                OfDevice::Managed(buffer) => buffer.close().map_err(error)?,
            },
            Self::Host(held) => match held.memory {
                OfHost::Pinned(buffer) => buffer.close().map_err(error)?,
                OfHost::Registered(buffer) => {
                    let bytes = buffer.into_inner().map_err(error)?;
                    same(&bytes, &held.contents)?;
                }
            },
        }
        Ok(())
    }
}
