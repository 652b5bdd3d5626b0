//! Two streams share a buffer, each with its own parts.

use cuda_core::{Stream, StreamKind};
use proptest::prelude::*;

use crate::property::outcome::{Done, allowed, note, pick};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum Splitting {
    Halves { buffer: u8, mid: u16, value: u8 },
    Chunks { buffer: u8, parts: u8, value: u8 },
}

pub(in crate::property) fn work() -> impl Strategy<Value = Splitting> {
    let small = any::<u8>;
    prop_oneof![
        (small(), 0..24u16, small()).prop_map(|(buffer, mid, value)| Splitting::Halves {
            buffer,
            mid,
            value
        }),
        (small(), 1..40u8, small()).prop_map(|(buffer, parts, value)| Splitting::Chunks {
            buffer,
            parts,
            value
        }),
    ]
}

impl World {
    pub(super) fn parts<A: StreamKind, B: StreamKind>(
        &mut self,
        first: &Stream<A>,
        second: &Stream<B>,
        work: Splitting,
    ) -> Done {
        let (Splitting::Halves { buffer, .. } | Splitting::Chunks { buffer, .. }) = work;
        let Some(held) = pick(&mut self.device, buffer) else {
            return Ok(());
        };
        let devices = [held.memory.device_for(first), held.memory.device_for(second)];
        let len = held.memory.len();
        let chunk = match work {
            Splitting::Halves { mid, value, .. } => {
                let mid = usize::from(mid).min(len);
                let (mut head, mut tail) = held.memory.view_mut().split_at_mut(mid)?;
                let (in_head, in_tail) = held.contents.split_at_mut(mid);
                let filled = first.fill_bytes(&mut head, value);
                let one = note(in_head, allowed(first, &devices[..1], filled), |part| {
                    part.fill(Some(value))
                });
                let filled = second.fill_bytes(&mut tail, !value);
                let two = note(in_tail, allowed(second, &devices[1..], filled), |part| {
                    part.fill(Some(!value))
                });
                return one.and(two);
            }
            Splitting::Chunks { parts, .. } => len / usize::from(parts) + 1,
        };
        let Splitting::Chunks { value, .. } = work else {
            return Ok(());
        };
        let view = held.memory.view_mut();
        let all = view.chunks_mut(chunk)?.zip(held.contents.chunks_mut(chunk));
        let mut done = Ok(());
        for ((number, (part, contents)), value) in all.enumerate().zip((value..=u8::MAX).cycle()) {
            let outcome = if number % 2 == 0 {
                allowed(first, &devices[..1], first.fill(part, value))
            } else {
                allowed(second, &devices[1..], second.fill(part, value))
            };
            let noted = note(contents, outcome, |part| part.fill(Some(value)));
            done = done.and(noted);
        }
        done
    }
}
