//! The schedule of threaded mode: how far queued work proceeds between two calls, drawn from a
//! seed.

use crate::handle::Id;

/// Chances in sixteen that the device performs one more step. A pace, drawn from the seed as well, holds for
/// a while, so that one schedule has stretches that are nearly lazy and others that are nearly eager.
const PACES: [u64; 4] = [2, 6, 11, 15];

/// The average number of decisions after which the pace changes.
const STRETCH: u64 = 32;

#[derive(Debug)]
pub(crate) struct Schedule {
    draw: Draw,
    pace: u64,
}

/// Numbers drawn from a seed.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Schedule {
    pub(crate) fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed), pace: PACES[1] }
    }

    /// Returns whether the device performs one more step before the call returns.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.draw.below(STRETCH) == 0 {
            self.pace = PACES[self.draw.below(PACES.len() as u64) as usize];
        }
        self.draw.below(16) < self.pace
    }

    pub(crate) fn pick(&mut self, streams: &[Id]) -> Option<Id> {
        let last = streams.len().checked_sub(1)?;
        let at = self.draw.below(last as u64 + 1) as usize;
        streams.get(at).copied()
    }
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`, by SplitMix64. Its slight bias is harmless.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(seed: u64) -> Vec<(bool, Option<Id>)> {
        let mut schedule = Schedule::new(seed);
        let decide = |_| (schedule.goes_on(), schedule.pick(&[3, 5, 8]));
        (0..200).map(decide).collect()
    }

    #[test]
    fn a_seed_is_one_schedule() {
        assert_eq!(decisions(7), decisions(7));
        assert_ne!(decisions(7), decisions(8));
    }

    #[test]
    fn every_stream_has_its_turn_and_every_schedule_rests() {
        let all = decisions(0);
        for stream in [3, 5, 8] {
            assert!(all.iter().any(|(_, picked)| *picked == Some(stream)));
        }
        assert!(all.iter().any(|(on, _)| *on) && all.iter().any(|(on, _)| !*on));
        assert_eq!(Schedule::new(0).pick(&[]), None);
    }
}
