//! The objects of a program, with the model of their contents.

mod forgotten;
pub(super) mod memory;

use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::{
    CachingPool, Context, ContextFlags, Device, DeviceGroup, Event, InFlight, MemoryPool, Signal,
    Stream,
};

use super::outcome::{Contents, Done, same};
pub(super) use forgotten::{Forgotten, Left};
use memory::{Held, OfDevice, OfHost, compare, located};

/// All objects that the threads share.
pub(super) struct World {
    pub(super) contexts: Vec<Context>,
    /// Pairs of contexts, the first of which has access to the second's memory.
    pub(super) peers: Vec<(Context, Context)>,
    pub(super) streams: Vec<Stream>,
    pub(super) device: Vec<Held<OfDevice>>,
    pub(super) host: Vec<Held<OfHost>>,
    /// Owned copies, with the final contents of their memory.
    pub(super) flights: Vec<(InFlight<Vec<u8>>, Contents)>,
    /// The program's own caching pools.
    pub(super) caches: [CachingPool; 2],
    /// The program's own driver pools.
    pub(super) pools: Vec<MemoryPool>,
    pub(super) events: Vec<Event>,
    pub(super) signals: Vec<Signal<u32>>,
    pub(super) group: Option<DeviceGroup>,
    pub(super) calls: Calls,
    pub(super) forgotten: Forgotten,
}

/// Host functions: how many were launched on each stream, by id, and which have run.
#[derive(Debug, Default)]
pub(super) struct Calls {
    launched: Vec<(u64, usize)>,
    ran: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Calls {
    /// Returns a host function for that stream.
    pub(super) fn next(&mut self, stream: u64) -> impl FnOnce() + Send + use<> {
        let number = self.launched.iter().filter(|(id, _)| *id == stream).count();
        self.launched.push((stream, number));
        let ran = Arc::clone(&self.ran);
        move || ran.lock().unwrap_or_else(PoisonError::into_inner).push((stream, number))
    }

    /// Asserts that each function has run once, in the order of its stream.
    pub(super) fn compare(&self) -> Result<(), String> {
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |calls: &[(u64, usize)], stream: u64| -> Vec<usize> {
            calls.iter().filter(|(id, _)| *id == stream).map(|(_, number)| *number).collect()
        };
        for (stream, _) in &self.launched {
            let (expected, actual) = (of(&self.launched, *stream), of(&ran, *stream));
            if actual != expected {
                return Err(format!("host functions of stream {stream} ran as {actual:?}"));
            }
        }
        Ok(())
    }

    /// Returns whether no function is left: each was called or dropped.
    pub(super) fn are_gone(&self) -> bool {
        Arc::strong_count(&self.ran) == 1
    }
}

/// The order in which a world ends: the index of the object that is dropped next, modulo the number of
/// remaining objects.
pub(super) type Ending = Vec<u8>;

impl World {
    /// Creates a stream on each of two devices, and one more context.
    pub(super) fn new() -> cuda_core::Result<Self> {
        let (first, second) = (Device::get(0)?, Device::get(1)?);
        let mut contexts = vec![first.context()?, second.context()?];
        let streams: Vec<_> = contexts.iter().map(Context::create_stream).collect();
        contexts.push(Context::new(first, ContextFlags::SCHED_AUTO)?);
        Ok(Self {
            streams: streams.into_iter().collect::<cuda_core::Result<_>>()?,
            contexts,
            peers: Vec::new(),
            device: Vec::new(),
            host: Vec::new(),
            flights: Vec::new(),
            caches: [CachingPool::new(), CachingPool::new()],
            pools: Vec::new(),
            events: Vec::new(),
            signals: Vec::new(),
            group: None,
            calls: Calls::default(),
            forgotten: Forgotten::default(),
        })
    }

    /// Waits for all work and compares all memory with the model.
    pub(super) fn compare_everything(&mut self) -> Done {
        compare(&self.device, &self.host)?;
        for (flight, contents) in self.flights.drain(..) {
            let bytes = flight.wait()?;
            located(same(&bytes, &contents), "owned copy", 0)?;
        }
        for device in Device::all()? {
            device.synchronize()?;
        }
        for context in &self.contexts {
            context.synchronize()?;
        }
        Ok(())
    }

    /// Drops everything in the given order, except for what was forgotten.
    pub(super) fn into_forgotten(self, ending: &Ending) -> Forgotten {
        let mut forgotten = self.forgotten;
        forgotten.calls = self.calls;
        let stays = |(from, to): &&(Context, Context)| from.is_primary() && to.is_primary();
        forgotten.peers = self.peers.iter().filter(stays).cloned().collect();
        let mut rest: Vec<Box<dyn FnOnce()>> = Vec::new();
        fn later<T: 'static>(rest: &mut Vec<Box<dyn FnOnce()>>, all: Vec<T>) {
            for value in all {
                rest.push(Box::new(move || drop(value)));
            }
        }
        later(&mut rest, self.device);
        later(&mut rest, self.host);
        later(&mut rest, self.flights);
        later(&mut rest, self.contexts);
        later(&mut rest, self.peers);
        later(&mut rest, self.streams);
        later(&mut rest, self.events);
        later(&mut rest, self.signals);
        later(&mut rest, self.pools);
        later(&mut rest, self.caches.into());
        later(&mut rest, self.group.into_iter().collect());
        let mut next = ending.iter().chain(std::iter::repeat(&0));
        while !rest.is_empty() {
            let at = next.next().map_or(0, |at| usize::from(*at));
            rest.remove(at % rest.len())();
        }
        forgotten
    }
}
