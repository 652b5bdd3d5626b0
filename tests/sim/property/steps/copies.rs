//! Copies of every kind.

use cuda_core::{Batch, Rejected, Stream, StreamKind};
use proptest::prelude::*;

use crate::property::outcome::{
    Departure, Done, alike, allowed, known, note, pattern, pick, same, two,
};
use crate::property::program::{Part, part};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum Copying {
    Upload { from: Part, to: Part },
    Download { from: Part, to: Part },
    Copy { from: Part, to: Part },
    CopyWithin { buffer: u8, mid: u16 },
    Fill { to: Part, value: u8 },
    UploadFrom { to: Part, value: u8 },
    DownloadTo { from: Part },
    UploadOwned { to: Part, value: u8 },
    DownloadOwned { from: Part },
    Scope { parts: [Part; 2] },
    Batch { device: u8, host: u8, mid: u16 },
}

pub(in crate::property) fn work() -> impl Strategy<Value = Copying> {
    let small = any::<u8>;
    prop_oneof![
        3 => (part(), part()).prop_map(|(from, to)| Copying::Upload { from, to }),
        3 => (part(), part()).prop_map(|(from, to)| Copying::Download { from, to }),
        3 => (part(), part()).prop_map(|(from, to)| Copying::Copy { from, to }),
        1 => (small(), 0..24u16).prop_map(|(buffer, mid)| Copying::CopyWithin { buffer, mid }),
        2 => (part(), small()).prop_map(|(to, value)| Copying::Fill { to, value }),
        2 => (part(), small()).prop_map(|(to, value)| Copying::UploadFrom { to, value }),
        1 => part().prop_map(|from| Copying::DownloadTo { from }),
        1 => (part(), small()).prop_map(|(to, value)| Copying::UploadOwned { to, value }),
        1 => part().prop_map(|from| Copying::DownloadOwned { from }),
        1 => [part(), part()].prop_map(|parts| Copying::Scope { parts }),
        1 => (small(), small(), 0..24u16)
            .prop_map(|(device, host, mid)| Copying::Batch { device, host, mid }),
    ]
}

/// The most owned copies that a program has at once.
const FLIGHTS: usize = 6;

impl World {
    pub(super) fn copies<K: StreamKind>(&mut self, stream: &Stream<K>, work: Copying) -> Done {
        match work {
            Copying::Upload { from, to } => {
                let source = pick(&mut self.host, from.buffer);
                let target = pick(&mut self.device, to.buffer);
                let (Some(source), Some(target)) = (source, target) else {
                    return Ok(());
                };
                let (from, to) = alike(from.of(source.memory.len()), to.of(target.memory.len()));
                let devices = [target.memory.device_for(stream)];
                let mut view = target.memory.view_mut();
                let view = view.slice_mut(to.clone())?;
                let copied = stream.upload(source.memory.view().slice(from.clone())?, view);
                let outcome = allowed(stream, &devices, copied);
                note(&mut target.contents[to], outcome, |part| {
                    part.copy_from_slice(&source.contents[from])
                })
            }
            Copying::Download { from, to } => {
                let source = pick(&mut self.device, from.buffer);
                let target = pick(&mut self.host, to.buffer);
                let (Some(source), Some(target)) = (source, target) else {
                    return Ok(());
                };
                let (from, to) = alike(from.of(source.memory.len()), to.of(target.memory.len()));
                let devices = [source.memory.device_for(stream)];
                let mut view = target.memory.view_mut();
                let view = view.slice_mut(to.clone())?;
                let copied = stream.download(source.memory.view().slice(from.clone())?, view);
                let outcome = allowed(stream, &devices, copied);
                note(&mut target.contents[to], outcome, |part| {
                    part.copy_from_slice(&source.contents[from])
                })
            }
            Copying::Copy { from, to } => {
                let Some((source, target)) = two(&mut self.device, from.buffer, to.buffer) else {
                    return Ok(());
                };
                let (from, to) = alike(from.of(source.memory.len()), to.of(target.memory.len()));
                let devices = [source.memory.device_for(stream), target.memory.device_for(stream)];
                let mut view = target.memory.view_mut();
                let view = view.slice_mut(to.clone())?;
                let copied = stream.copy(source.memory.view().slice(from.clone())?, view);
                let outcome = allowed(stream, &devices, copied);
                note(&mut target.contents[to], outcome, |part| {
                    part.copy_from_slice(&source.contents[from])
                })
            }
            Copying::CopyWithin { buffer, mid } => {
                let Some(held) = pick(&mut self.device, buffer) else {
                    return Ok(());
                };
                let len = held.memory.len();
                let devices = [held.memory.device_for(stream)];
                let mid = usize::from(mid).min(len);
                let (from, to) = alike(0..mid, mid..len);
                let copied = stream.copy_within(held.memory.view_mut(), from.clone(), mid);
                let (head, tail) = held.contents.split_at_mut(mid);
                note(&mut tail[..to.len()], allowed(stream, &devices, copied), |part| {
                    part.copy_from_slice(&head[from])
                })
            }
            Copying::Fill { to, value } => {
                let Some(held) = pick(&mut self.device, to.buffer) else {
                    return Ok(());
                };
                let to = to.of(held.memory.len());
                let devices = [held.memory.device_for(stream)];
                let mut view = held.memory.view_mut();
                let filled = stream.fill(view.slice_mut(to.clone())?, value);
                let outcome = allowed(stream, &devices, filled);
                note(&mut held.contents[to], outcome, |part| part.fill(Some(value)))
            }
            Copying::UploadFrom { to, value } => {
                let Some(held) = pick(&mut self.device, to.buffer) else {
                    return Ok(());
                };
                let to = to.of(held.memory.len());
                let devices = [held.memory.device_for(stream)];
                let bytes = pattern(to.len(), value);
                let mut view = held.memory.view_mut();
                let copied = stream.upload(&bytes, view.slice_mut(to.clone())?);
                let outcome = allowed(stream, &devices, copied);
                note(&mut held.contents[to], outcome, |part| part.copy_from_slice(&known(&bytes)))
            }
            Copying::DownloadTo { from } => {
                let Some(held) = pick(&mut self.device, from.buffer) else {
                    return Ok(());
                };
                let from = from.of(held.memory.len());
                let devices = [held.memory.device_for(stream)];
                let mut bytes = vec![0; from.len()];
                let part = held.memory.view().slice(from.clone())?;
                let copied = stream.download(part, &mut bytes);
                if allowed(stream, &devices, copied)? {
                    same(&bytes, &held.contents[from])?;
                }
                Ok(())
            }
            Copying::UploadOwned { to, value } => self.upload_owned(stream, to, value),
            Copying::DownloadOwned { from } => self.download_owned(stream, from),
            Copying::Scope { parts } => self.scope(stream, parts),
            Copying::Batch { device, host, mid } => self.batch(stream, device, host, mid.into()),
        }
    }

    fn upload_owned<K: StreamKind>(&mut self, stream: &Stream<K>, to: Part, value: u8) -> Done {
        let Some(held) = pick(&mut self.device, to.buffer) else {
            return Ok(());
        };
        if self.flights.len() >= FLIGHTS {
            return Ok(());
        }
        let to = to.of(held.memory.len());
        let devices = [held.memory.device_for(stream)];
        let bytes = pattern(to.len(), value);
        let contents = known(&bytes);
        let mut view = held.memory.view_mut();
        let copied = match stream.upload_owned(bytes, view.slice_mut(to.clone())?) {
            Ok(flight) => {
                self.flights.push((flight, contents.clone()));
                Ok(())
            }
            Err(Rejected { error, .. }) => Err(error),
        };
        let outcome = allowed(stream, &devices, copied);
        note(&mut held.contents[to], outcome, |part| part.copy_from_slice(&contents))
    }

    fn download_owned<K: StreamKind>(&mut self, stream: &Stream<K>, from: Part) -> Done {
        let Some(held) = pick(&mut self.device, from.buffer) else {
            return Ok(());
        };
        if self.flights.len() >= FLIGHTS {
            return Ok(());
        }
        let from = from.of(held.memory.len());
        let devices = [held.memory.device_for(stream)];
        let part = held.memory.view().slice(from.clone())?;
        let copied = match stream.download_owned(part, vec![0; from.len()]) {
            Ok(flight) => {
                self.flights.push((flight, held.contents[from].to_vec()));
                Ok(())
            }
            Err(Rejected { error, .. }) => Err(error),
        };
        allowed(stream, &devices, copied).map(drop)
    }

    fn scope<K: StreamKind>(&mut self, stream: &Stream<K>, parts: [Part; 2]) -> Done {
        let mut out = [Vec::new(), Vec::new()];
        let mut expected = Vec::new();
        let here: Vec<_> = self
            .device
            .iter()
            .filter(|held| held.memory.device_for(stream) == stream.device())
            .collect();
        if here.is_empty() {
            return Ok(());
        }
        stream.scope(|scope| {
            for (part, out) in parts.into_iter().zip(&mut out) {
                let held = here[usize::from(part.buffer) % here.len()];
                let range = part.of(held.memory.len());
                *out = vec![0; range.len()];
                scope.download(held.memory.view().slice(range.clone())?, out)?;
                expected.push(&held.contents[range]);
            }
            Ok(())
        })?;
        for (bytes, contents) in out.iter().zip(expected) {
            same(bytes, contents)?;
        }
        Ok(())
    }

    /// Copies one half up and the other down, concurrently.
    fn batch<K: StreamKind>(
        &mut self,
        stream: &Stream<K>,
        device: u8,
        host: u8,
        mid: usize,
    ) -> Done {
        let device = pick(&mut self.device, device);
        let host = pick(&mut self.host, host);
        let (Some(device), Some(host)) = (device, host) else {
            return Ok(());
        };
        let len = device.memory.len().min(host.memory.len());
        let mid = mid.min(len);
        // In a batch, managed memory counts as memory of the device that it was created for.
        let devices = [device.memory.view().device()];
        let (up_to, down_from) = device.memory.view_mut().split_at_mut(mid)?;
        let (up_from, mut down_to) = host.memory.view_mut().split_at_mut(mid)?;
        let mut batch = Batch::new();
        let enqueued = batch
            .upload(&up_from, up_to)
            .and_then(|()| {
                let from = down_from.as_view().slice(..len - mid)?;
                batch.download(from, down_to.slice_mut(..len - mid)?)
            })
            .and_then(|()| stream.enqueue(batch));
        if len == 0 {
            return Ok(enqueued?);
        }
        match allowed(stream, &devices, enqueued) {
            Ok(true) => {
                device.contents[..mid].copy_from_slice(&host.contents[..mid]);
                host.contents[mid..len].copy_from_slice(&device.contents[mid..len]);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(departure) => {
                device.contents[..mid].fill(None);
                host.contents[mid..len].fill(None);
                Err::<(), Departure>(departure)
            }
        }
    }
}
