//! One step.

use std::fmt;

use cuda_core::{
    Context, ContextFlags, Device, DeviceBuffer, Error, PinnedBuffer, Result, Stream, StreamKind,
};

use super::{Contents, World, same};
use crate::property::program::{On, Op, Part};
use crate::property::threads::Local;

/// Contexts and buffers that a program may have at once.
const MOST: usize = 6;

/// Runs an expression with a stream of either kind.
macro_rules! with_stream {
    ($world:expr, $local:expr, $on:expr, |$stream:ident| $body:expr) => {
        match $on {
            On::Created(index) => {
                let $stream = &$world.created(index)?;
                $body
            }
            On::Legacy(index) => {
                let $stream = &$world.context(index).default_stream()?;
                $body
            }
            On::PerThread(index) => {
                let $stream = &per_thread(&$world.context(index), $local)?;
                $body
            }
        }
    };
}

/// The thread's default stream; a thread keeps the first one that it uses, and makes others for one
/// operation.
fn per_thread(context: &Context, local: &mut Local) -> Result<cuda_core::PerThreadStream> {
    let stream = context.per_thread_stream()?;
    if local.streams.is_empty() {
        local.streams.push(stream.clone());
    }
    Ok(stream)
}

impl Part {
    /// Start and end within `len` elements.
    pub(in crate::property) fn of(self, len: usize) -> std::ops::Range<usize> {
        let start = usize::from(self.start).min(len);
        start..(start + usize::from(self.len)).min(len)
    }
}

/// Two ranges of the same length.
pub(in crate::property) fn alike(
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let len = a.len().min(b.len());
    (a.start..a.start + len, b.start..b.start + len)
}

/// The operation must succeed where the stream is on the memory's device, and be refused elsewhere.
pub(in crate::property) fn allowed<K: StreamKind>(
    stream: &Stream<K>,
    devices: &[Device],
    result: Result<()>,
) -> Outcome {
    match (devices.contains(&stream.device()), result) {
        (true, Ok(())) => Ok(true),
        (false, Err(Error::WrongDevice { .. })) => Ok(false),
        (true, Err(error)) => Err(Departure::Failed(error)),
        (false, other) => Err(Departure::Wrong(format!("not refused: {other:?}"))),
    }
}

/// Whether the operation took place.
pub(in crate::property) type Outcome = std::result::Result<bool, Departure>;

/// How a step departs from the model.
#[derive(Debug)]
pub(in crate::property) enum Departure {
    Failed(Error),
    Wrong(String),
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Wrong(message) => f.write_str(message),
        }
    }
}

impl From<Error> for Departure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Departure {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

fn pick<T>(items: &mut [T], index: u8) -> Option<&mut T> {
    let len = items.len();
    items.get_mut(usize::from(index).checked_rem(len)?)
}

pub(in crate::property) fn take<T>(items: &mut Vec<T>, index: u8) -> Option<T> {
    let index = usize::from(index).checked_rem(items.len())?;
    Some(items.remove(index))
}

impl World {
    pub(in crate::property) fn act(
        &mut self,
        op: Op,
        local: &mut Local,
    ) -> std::result::Result<(), String> {
        self.step(op, local)
            .map_err(|departure| departure.to_string())
    }

    fn context(&self, index: u8) -> Context {
        self.contexts[usize::from(index) % self.contexts.len()].clone()
    }

    fn created(&mut self, index: u8) -> Result<Stream> {
        if self.streams.is_empty() {
            self.streams.push(self.contexts[0].create_stream()?);
        }
        Ok(self.streams[usize::from(index) % self.streams.len()].clone())
    }

    fn step(&mut self, op: Op, local: &mut Local) -> std::result::Result<(), Departure> {
        match op {
            Op::CreateContext { device } => {
                if self.contexts.len() < MOST {
                    let device = Device::get(u32::from(device))?;
                    self.contexts
                        .push(Context::create(device, ContextFlags::SCHED_AUTO)?);
                }
            }
            Op::DropContext { context } => {
                if self.contexts.len() > 1 {
                    drop(take(&mut self.contexts, context));
                }
            }
            Op::Enter { context } => local.enter(&self.context(context))?,
            Op::Leave { guard, explicit } => {
                if local.has_guards() {
                    local.leave(guard, explicit)?;
                }
            }
            Op::ForgetGuard { guard } => {
                if local.has_guards() {
                    local.forget(guard);
                    self.forgotten.guard();
                }
            }
            Op::Push { context } => local.push(&self.context(context))?,
            Op::SetCurrent { context } => local.set_current(&self.context(context))?,

            Op::CreateStream { context, blocking } => {
                let context = self.context(context);
                let builder = context.stream_builder();
                let builder = if blocking {
                    builder.blocking()
                } else {
                    builder
                };
                self.streams.push(builder.build()?);
            }
            Op::DropStream { stream, explicit } => match take(&mut self.streams, stream) {
                Some(stream) if explicit => stream.close().map_err(|(error, _)| error)?,
                other => drop(other),
            },
            Op::WaitStream { stream, other } => with_stream!(self, local, stream, |stream| {
                with_stream!(self, local, other, |other| stream.wait_stream(other)?)
            }),
            Op::Checkpoint { stream } => {
                with_stream!(self, local, stream, |stream| stream.checkpoint()?)
            }
            Op::Synchronize { stream } => {
                with_stream!(self, local, stream, |stream| stream.synchronize()?)
            }
            Op::Query { stream } => {
                with_stream!(self, local, stream, |stream| stream.query().map(|_| ())?)
            }
            Op::HostFunction { stream } => with_stream!(self, local, stream, |stream| {
                let call = self.calls.next(stream.id());
                stream.launch_host_func(call)?
            }),
            Op::HostFunctionThatOwns { stream, buffer } => {
                with_stream!(self, local, stream, |stream| {
                    let call = self.calls.next(stream.id());
                    let owned = take(&mut self.device, buffer);
                    stream.launch_host_func(move || {
                        call();
                        drop(owned);
                    })?
                })
            }

            Op::Alloc {
                stream,
                len,
                zeroed,
            } => {
                let home = match stream {
                    On::Created(index) | On::PerThread(index) => self.created(index)?,
                    On::Legacy(index) => self.context(index).default_stream()?,
                };
                let len = usize::from(len);
                if self.device.len() < MOST {
                    let (buffer, known) = if zeroed {
                        (home.alloc_zeroed(len)?, Some(0))
                    } else {
                        (home.alloc(len)?, None)
                    };
                    if let On::Legacy(_) = stream {
                        self.on_default_streams.push(buffer.as_raw());
                    }
                    self.device.push((buffer, vec![known; len]));
                }
            }
            Op::DropDevice { buffer, explicit } => match take(&mut self.device, buffer) {
                Some((buffer, _)) if explicit => buffer.close().map_err(|(error, _)| error)?,
                other => drop(other),
            },
            Op::ForgetDevice { buffer } => {
                if let Some((buffer, _)) = take(&mut self.device, buffer) {
                    if !self.on_default_streams.contains(&buffer.as_raw()) {
                        self.forgotten.device(buffer);
                    }
                }
            }
            Op::Pin { context, len } => {
                let len = usize::from(len);
                if self.pinned.len() < MOST {
                    let buffer = PinnedBuffer::zeroed(&self.context(context), len)?;
                    self.pinned.push((buffer, vec![Some(0); len]));
                }
            }
            Op::DropPinned { buffer, explicit } => match take(&mut self.pinned, buffer) {
                Some((buffer, _)) if explicit => buffer.close().map_err(|(error, _)| error)?,
                other => drop(other),
            },
            Op::ForgetPinned { buffer } => {
                if let Some((buffer, _)) = take(&mut self.pinned, buffer) {
                    self.forgotten.pinned(buffer)?;
                }
            }

            Op::Upload { stream, from, to } => with_stream!(self, local, stream, |stream| {
                let source = pick(&mut self.pinned, from.buffer);
                let target = pick(&mut self.device, to.buffer);
                if let (Some((source, known)), Some((target, contents))) = (source, target) {
                    let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                    let devices = [target.device()];
                    let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                    if allowed(stream, &devices, stream.upload(parts.0, parts.1))? {
                        contents[to].copy_from_slice(&known[from]);
                    }
                }
            }),
            Op::Download { stream, from, to } => with_stream!(self, local, stream, |stream| {
                let source = pick(&mut self.device, from.buffer);
                let target = pick(&mut self.pinned, to.buffer);
                if let (Some((source, known)), Some((target, contents))) = (source, target) {
                    let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                    let devices = [source.device()];
                    let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                    if allowed(stream, &devices, stream.download(parts.0, parts.1))? {
                        contents[to].copy_from_slice(&known[from]);
                    }
                }
            }),
            Op::Copy { stream, from, to } => with_stream!(self, local, stream, |stream| {
                let Some(pair) = self.two_buffers(from.buffer, to.buffer) else {
                    return Ok(());
                };
                let ((source, known), (target, contents)) = pair;
                let (from, to) = alike(from.of(source.len()), to.of(target.len()));
                let devices = [source.device(), target.device()];
                let parts = (source.slice(from.clone())?, target.slice_mut(to.clone())?);
                if allowed(stream, &devices, stream.copy(parts.0, parts.1))? {
                    contents[to].copy_from_slice(&known[from]);
                }
            }),
            Op::CopyWithin {
                stream,
                buffer,
                mid,
            } => with_stream!(self, local, stream, |stream| {
                if let Some((buffer, contents)) = pick(&mut self.device, buffer) {
                    let (len, devices) = (buffer.len(), [buffer.device()]);
                    let mid = usize::from(mid).min(len);
                    let (from, to) = alike(0..mid, mid..len);
                    let (head, mut tail) = buffer.split_at_mut(mid)?;
                    let source = head.as_view().slice(from.clone())?;
                    let target = tail.slice_mut(..to.len())?;
                    if allowed(stream, &devices, stream.copy(source, target))? {
                        contents.copy_within(from, to.start);
                    }
                }
            }),
            Op::Fill { stream, to, value } => with_stream!(self, local, stream, |stream| {
                if let Some((buffer, contents)) = pick(&mut self.device, to.buffer) {
                    let (to, devices) = (to.of(buffer.len()), [buffer.device()]);
                    let empty = to.is_empty();
                    let result = stream.fill(buffer.slice_mut(to.clone())?, value);
                    // Nothing to fill is no reason to look at devices.
                    if empty {
                        result?;
                    } else if allowed(stream, &devices, result)? {
                        contents[to].fill(Some(value));
                    }
                }
            }),
            Op::FillHalves {
                streams,
                buffer,
                mid,
                value,
            } => {
                with_stream!(self, local, streams[0], |first| {
                    with_stream!(self, local, streams[1], |second| {
                        if let Some((buffer, contents)) = pick(&mut self.device, buffer) {
                            let devices = [buffer.device()];
                            let mid = usize::from(mid).min(buffer.len());
                            let (mut head, mut tail) = buffer.split_at_mut(mid)?;
                            let filled = first.fill_bytes(&mut head, value);
                            if allowed(first, &devices, filled)? {
                                contents[..mid].fill(Some(value));
                            }
                            let filled = second.fill_bytes(&mut tail, !value);
                            if allowed(second, &devices, filled)? {
                                contents[mid..].fill(Some(!value));
                            }
                        }
                    })
                })
            }
            Op::UploadFrom { stream, to, value } => with_stream!(self, local, stream, |stream| {
                if let Some((buffer, contents)) = pick(&mut self.device, to.buffer) {
                    let (to, devices) = (to.of(buffer.len()), [buffer.device()]);
                    let bytes: Vec<u8> = (0..to.len() as u8).map(|i| i ^ value).collect();
                    let result = stream.upload_from(&bytes, buffer.slice_mut(to.clone())?);
                    if allowed(stream, &devices, result)? {
                        contents[to].copy_from_slice(&known(&bytes));
                    }
                }
            }),
            Op::DownloadTo { stream, from } => with_stream!(self, local, stream, |stream| {
                if let Some((buffer, contents)) = pick(&mut self.device, from.buffer) {
                    let (from, devices) = (from.of(buffer.len()), [buffer.device()]);
                    let mut bytes = vec![0; from.len()];
                    let result = stream.download_to(buffer.slice(from.clone())?, &mut bytes);
                    if allowed(stream, &devices, result)? {
                        same(&bytes, &contents[from])?;
                    }
                }
            }),
            Op::Scope { stream, parts } => {
                with_stream!(self, local, stream, |stream| self.scope(stream, parts)?)
            }

            Op::Read { from } => {
                if let Some((buffer, contents)) = pick(&mut self.pinned, from.buffer) {
                    let from = from.of(buffer.len());
                    same(buffer.slice(from.clone())?.as_slice()?, &contents[from])?;
                }
            }
            Op::TryRead { from } => {
                if let Some((buffer, contents)) = pick(&mut self.pinned, from.buffer) {
                    let from = from.of(buffer.len());
                    if let Some(bytes) = buffer.slice(from.clone())?.try_as_slice()? {
                        same(bytes, &contents[from])?;
                    }
                }
            }
            Op::Write { to, value } => {
                if let Some((buffer, contents)) = pick(&mut self.pinned, to.buffer) {
                    let to = to.of(buffer.len());
                    let mut part = buffer.slice_mut(to.clone())?;
                    let bytes = part.as_mut_slice()?;
                    same(bytes, &contents[to.clone()])?;
                    bytes
                        .iter_mut()
                        .zip(0..)
                        .for_each(|(byte, i)| *byte = value ^ i);
                    contents[to].copy_from_slice(&known(bytes));
                }
            }
        }
        Ok(())
    }

    fn scope<K: StreamKind>(
        &mut self,
        stream: &Stream<K>,
        parts: [Part; 2],
    ) -> std::result::Result<(), Departure> {
        let mut out = [vec![0; 24], vec![0; 24]];
        let mut expected = Vec::new();
        let here: Vec<_> = self
            .device
            .iter()
            .filter(|(buffer, _)| buffer.device() == stream.device())
            .collect();
        if here.is_empty() {
            return Ok(());
        }
        stream.scope(|scope| {
            for (part, out) in parts.into_iter().zip(&mut out) {
                let (buffer, contents) = here[usize::from(part.buffer) % here.len()];
                let range = part.of(buffer.len());
                scope.download(buffer.slice(range.clone())?, &mut out[..range.len()])?;
                expected.push(&contents[range]);
            }
            Ok(())
        })?;
        for (bytes, contents) in out.iter().zip(expected) {
            same(&bytes[..contents.len()], contents)?;
        }
        Ok(())
    }

    /// Two different buffers of the device kind.
    #[allow(clippy::type_complexity, reason = "two of what `device` holds")]
    fn two_buffers(
        &mut self,
        from: u8,
        to: u8,
    ) -> Option<(
        &(DeviceBuffer<u8>, Contents),
        &mut (DeviceBuffer<u8>, Contents),
    )> {
        let count = self.device.len();
        let from = usize::from(from).checked_rem(count)?;
        let to = usize::from(to).checked_rem(count)?;
        if from == to {
            return None;
        }
        let (low, high) = self.device.split_at_mut(from.max(to));
        let (a, b) = (&mut low[from.min(to)], &mut high[0]);
        Some(if from < to { (a, b) } else { (b, a) })
    }
}

pub(in crate::property) fn known(bytes: &[u8]) -> Contents {
    bytes.iter().copied().map(Some).collect()
}
