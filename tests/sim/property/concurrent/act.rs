//! One thread with its own objects, and the effect of each step on them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_core::{
    DeviceBuffer, DeviceMemory, DeviceSliceMut, Guard, PerThreadStream, PinnedBuffer, PinnedMemory,
    PinnedSliceMut, Result, Stream, StreamKind,
};

use super::Shared;
use super::bank::{Bank, Owned};
use super::program::{Step, Work};
use crate::property::outcome::{Contents, Departure, alike, allowed, known, same};
use crate::property::program::On;

/// Memory in transit between two owners.
#[derive(Default)]
pub(super) struct Hands {
    device: Mutex<Vec<Owned<DeviceMemory>>>,
    pinned: Mutex<Vec<Owned<PinnedMemory>>>,
}

/// The objects of one thread.
pub(super) struct Worker<'a> {
    shared: &'a Shared,
    device: Bank<'a, DeviceMemory>,
    pinned: Bank<'a, PinnedMemory>,
    streams: Vec<Stream>,
}

/// Objects that are bound to the thread and cannot be passed to another.
#[derive(Default)]
struct Bound {
    guards: Vec<Guard>,
    streams: Vec<PerThreadStream>,
}

type Outcome = std::result::Result<(), Departure>;

/// Runs an expression with a stream of either kind.
macro_rules! with_stream {
    ($worker:expr, $bound:expr, $on:expr, |$stream:ident| $body:expr) => {
        match $on {
            On::Created(index) => {
                let $stream = &$worker.created(index);
                $body
            }
            On::Legacy(index) => {
                let $stream = &$worker.shared.context(index).default_stream()?;
                $body
            }
            On::PerThread(index) => {
                let $stream = &$worker.shared.context(index).per_thread_stream()?;
                if $bound.streams.is_empty() {
                    $bound.streams.push($stream.clone());
                }
                $body
            }
        }
    };
}

impl<'a> Worker<'a> {
    /// Creates a thread's objects, with its parts of the shared buffers, which are zero.
    pub(super) fn new(
        shared: &'a Shared,
        device: DeviceSliceMut<'a, u8>,
        pinned: PinnedSliceMut<'a, u8>,
    ) -> Self {
        Self { shared, device: Bank::new(device), pinned: Bank::new(pinned), streams: Vec::new() }
    }

    /// Runs all steps, then checks the thread's own memory, and returns the contents of its parts.
    pub(super) fn run(
        mut self,
        steps: Vec<Step>,
    ) -> std::result::Result<(Contents, Contents), String> {
        let mut bound = Bound::default();
        for (number, step) in steps.into_iter().enumerate() {
            let label = format!("step {number}, {step:?}");
            self.step(&mut bound, step).map_err(|departure| format!("{label}: {departure}"))?;
        }
        self.compare().map_err(|departure| departure.to_string())?;
        Ok((self.device.into_contents(), self.pinned.into_contents()))
    }

    fn compare(&self) -> Outcome {
        for (buffer, contents) in self.device.own() {
            let mut bytes = vec![0; buffer.len()];
            let stream = buffer.device().create_stream()?;
            stream.download(buffer, &mut bytes)?;
            same(&bytes, contents)?;
        }
        for (buffer, contents) in self.pinned.own() {
            same(buffer.as_slice()?, contents)?;
        }
        Ok(())
    }

    /// Returns one of the streams that all threads use, or of the thread's own.
    fn created(&self, index: u8) -> Stream {
        let all: Vec<_> = self.shared.streams.iter().chain(&self.streams).collect();
        all[usize::from(index) % all.len()].clone()
    }

    fn step(&mut self, bound: &mut Bound, step: Step) -> Outcome {
        match step {
            Step::Alloc { stream, len, zeroed } => {
                if self.device.has_room() {
                    let owned = self.alloc(stream, usize::from(len), zeroed)?;
                    self.device.add([owned]);
                }
            }
            Step::Pin { context, len } => {
                if self.pinned.has_room() {
                    let len = usize::from(len);
                    let buffer = PinnedBuffer::zeroed(self.shared.context(context), len)?;
                    self.pinned.add([(buffer, vec![Some(0); len])]);
                }
            }
            Step::Drop { buffer, explicit } => match self.device.take(buffer) {
                Some((buffer, _)) if explicit => buffer.close()?,
                other => drop(other),
            },
            Step::DropPinned { buffer, explicit } => match self.pinned.take(buffer) {
                Some((buffer, _)) if explicit => buffer.close()?,
                other => drop(other),
            },
            Step::GiveAway { buffer } => {
                lock(&self.shared.hands.device).extend(self.device.take(buffer));
            }
            Step::GiveAwayPinned { buffer } => {
                lock(&self.shared.hands.pinned).extend(self.pinned.take(buffer));
            }
            Step::TakeOver => {
                self.device.add(lock(&self.shared.hands.device).pop());
                self.pinned.add(lock(&self.shared.hands.pinned).pop());
            }
            Step::DropInHostFunction { stream, buffer } => {
                let owned = self.device.take(buffer);
                with_stream!(self, bound, stream, |stream| stream
                    .launch_host_func(move || drop(owned))?)
            }
            Step::CreateStream { context } => {
                self.streams.push(self.shared.context(context).create_stream()?)
            }
            Step::DropStream { stream } => {
                if let Some(at) = usize::from(stream).checked_rem(self.streams.len()) {
                    drop(self.streams.remove(at));
                }
            }
            Step::Enter { context } => bound.guards.push(self.shared.context(context).enter()?),
            Step::Leave => {
                if let Some(guard) = bound.guards.pop() {
                    guard.restore()?;
                }
            }
            Step::WaitStream { stream, other } => with_stream!(self, bound, stream, |stream| {
                with_stream!(self, bound, other, |other| stream.wait_stream(other)?)
            }),
            Step::Read { from } => {
                let (source, contents) = self.pinned.source(&self.shared.pinned, from.buffer);
                let from = from.of(source.len());
                same(source.slice(from.clone())?.as_slice()?, &contents[from])?;
            }
            Step::TryRead { from } => {
                let (source, contents) = self.pinned.source(&self.shared.pinned, from.buffer);
                let from = from.of(source.len());
                if let Some(bytes) = source.slice(from.clone())?.try_as_slice()? {
                    same(bytes, &contents[from])?;
                }
            }
            Step::Write { to, value } => {
                let (mut target, contents) = self.pinned.target(to.buffer);
                let to = to.of(target.len());
                let mut part = target.slice_mut(to.clone())?;
                let bytes = part.as_mut_slice()?;
                same(bytes, &contents[to.clone()])?;
                bytes.iter_mut().zip(0..).for_each(|(byte, i)| *byte = value ^ i);
                contents[to].copy_from_slice(&known(bytes));
            }
            Step::OnStream { stream, work } => {
                with_stream!(self, bound, stream, |stream| self.work(stream, work)?)
            }
        }
        Ok(())
    }

    /// Allocates a buffer; its home must be a created stream.
    fn alloc(&self, on: On, len: usize, zeroed: bool) -> Result<Owned<DeviceMemory>> {
        let home = match on {
            On::Created(index) | On::PerThread(index) => self.created(index),
            On::Legacy(index) => self.shared.context(index).default_stream()?,
        };
        let (buffer, known): (DeviceBuffer<u8>, _) =
            if zeroed { (home.alloc_zeroed(len)?, Some(0)) } else { (home.alloc(len)?, None) };
        Ok((buffer, vec![known; len]))
    }

    fn work<K: StreamKind>(&mut self, stream: &Stream<K>, work: Work) -> Outcome {
        let Shared { device, pinned, .. } = self.shared;
        match work {
            Work::Checkpoint => stream.checkpoint()?,
            Work::Synchronize => stream.synchronize()?,
            Work::Query => drop(stream.query()?),
            Work::Upload { from, to } => {
                let (source, known) = self.pinned.source(pinned, from.buffer);
                let (mut target, contents) = self.device.target(to.buffer);
                let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                let devices = [target.as_view().device()];
                let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                if allowed(stream, &devices, stream.upload(parts.0, parts.1))? {
                    contents[to].copy_from_slice(&known[from]);
                }
            }
            Work::Download { from, to } => {
                let (source, known) = self.device.source(device, from.buffer);
                let (mut target, contents) = self.pinned.target(to.buffer);
                let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                let devices = [source.device()];
                let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                if allowed(stream, &devices, stream.download(parts.0, parts.1))? {
                    contents[to].copy_from_slice(&known[from]);
                }
            }
            Work::Copy { from, to } => {
                let both = self.device.both(device, from.buffer, to.buffer);
                let Some(((source, known), (mut target, contents))) = both else {
                    return Ok(());
                };
                let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                let devices = [source.device(), target.as_view().device()];
                let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                if allowed(stream, &devices, stream.copy(parts.0, parts.1))? {
                    contents[to].copy_from_slice(&known[from]);
                }
            }
            Work::Fill { to, value } => {
                let (mut target, contents) = self.device.target(to.buffer);
                let (to, devices) = (to.of(target.len()), [target.as_view().device()]);
                let result = stream.fill(target.slice_mut(to.clone())?, value);
                if allowed(stream, &devices, result)? {
                    contents[to].fill(Some(value));
                }
            }
            Work::UploadFrom { to, value } => {
                let (mut target, contents) = self.device.target(to.buffer);
                let (to, devices) = (to.of(target.len()), [target.as_view().device()]);
                let bytes: Vec<u8> = (0..to.len() as u8).map(|i| i ^ value).collect();
                let result = stream.upload(&bytes, target.slice_mut(to.clone())?);
                if allowed(stream, &devices, result)? {
                    contents[to].copy_from_slice(&known(&bytes));
                }
            }
            Work::DownloadTo { from } => {
                let (source, contents) = self.device.source(device, from.buffer);
                let (from, devices) = (from.of(source.len()), [source.device()]);
                let mut bytes = vec![0; from.len()];
                let result = stream.download(source.slice(from.clone())?, &mut bytes);
                if allowed(stream, &devices, result)? {
                    same(&bytes, &contents[from])?;
                }
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
