//! What a program forgot on purpose, and what that keeps alive.

use cuda_core::{DeviceBuffer, PinnedBuffer};
use cuda_sim::{Leak, LeakKind};

use super::Calls;

/// Size of a staging chunk.
const CHUNK: usize = 1 << 20;

#[derive(Debug, Default)]
pub(in crate::property) struct Forgotten {
    /// Streams that forgotten buffers call home, each with the chunk that it stages in.
    homes: usize,
    /// Address and size of memory.
    device: Vec<(u64, usize)>,
    pinned: Vec<(u64, usize)>,
    /// Contexts that a forgotten guard or pinned buffer keeps, an empty one too.
    contexts: usize,
    pub(super) calls: Calls,
}

impl Forgotten {
    pub(super) fn device(&mut self, buffer: DeviceBuffer<u8>) {
        self.homes += 1;
        if !buffer.is_empty() {
            self.device.push((buffer.as_raw(), buffer.byte_len()));
        }
        std::mem::forget(buffer);
    }

    /// Waits for the buffer's copies, whose address it needs.
    pub(super) fn pinned(&mut self, buffer: PinnedBuffer<u8>) -> cuda_core::Result<()> {
        self.contexts += 1;
        if !buffer.is_empty() {
            self.pinned
                .push((buffer.as_slice()?.as_ptr().addr() as u64, buffer.byte_len()));
        }
        std::mem::forget(buffer);
        Ok(())
    }

    pub(super) fn guard(&mut self) {
        self.contexts += 2;
    }

    /// Leaks must be what was forgotten. Forgotten memory keeps its home, the timelines of its
    /// marks with their events, and their contexts; a forgotten guard keeps contexts.
    pub(in crate::property) fn explain(&self, leaks: &[Leak]) -> Result<(), String> {
        self.calls.compare()?;
        let of = |kind| leaks.iter().filter(move |leak| leak.kind == kind);
        let memory = |kind| {
            of(kind)
                .map(|leak| (leak.handle, leak.bytes))
                .collect::<Vec<_>>()
        };
        let (mut device, mut pinned) = (memory(LeakKind::Device), memory(LeakKind::Pinned));
        let missing = |leaked: &mut Vec<_>, forgotten: &[_]| {
            let before = leaked.len();
            leaked.retain(|leak| !forgotten.contains(leak));
            before - leaked.len() != forgotten.len()
        };
        let lost = missing(&mut device, &self.device) || missing(&mut pinned, &self.pinned);
        pinned.retain(|(_, bytes)| *bytes != CHUNK);
        let chunks = of(LeakKind::Pinned).count() - self.pinned.len();
        let events = of(LeakKind::Event).count();
        let kept = self.homes > 0 || !self.pinned.is_empty();
        let known = |leak: &Leak| {
            use LeakKind::{Context, Device, Event, Pinned, Stream};
            matches!(leak.kind, Device | Pinned | Stream | Event | Context)
        };
        let explained = !lost
            && device.is_empty()
            && pinned.is_empty()
            && chunks <= self.homes
            && of(LeakKind::Stream).count() <= self.homes
            && (events == 0 || kept)
            && (of(LeakKind::Context).count() <= self.contexts || kept)
            && leaks.iter().all(known);
        if explained {
            return Ok(());
        }
        Err(format!("forgotten: {self:?}, but leaked: {leaks:#?}"))
    }
}
