//! Two ways of doing one thing, in turn, in batches.

use std::time::Instant;

use anyhow::ensure;
use cuda_sys::{CUDA_SUCCESS, CUresult};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Batches of each way.
    pub(crate) batches: usize,
    /// Transfers of large memory, in bytes.
    pub(crate) large: [usize; 2],
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        batches: 1001,
        large: [64 << 20, 1 << 30],
    };
    pub(crate) const QUICK: Self = Self {
        batches: 31,
        large: [1 << 20, 8 << 20],
    };
}

/// Nanoseconds of one operation: medians over all batches.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) safe: f64,
    pub(crate) raw: f64,
    /// What the safe batch took more than the raw one beside it: machines drift, neighbours do not.
    pub(crate) more: f64,
}

/// Times `safe` and `raw` in batches of `batch` calls. `settle` runs, untimed, after each batch.
pub(crate) fn pair(
    batches: usize,
    batch: usize,
    mut safe: impl FnMut() -> cuda_core::Result<()>,
    mut raw: impl FnMut() -> CUresult,
    mut settle: impl FnMut() -> cuda_core::Result<()>,
) -> anyhow::Result<Pair> {
    let warm_up = batches / 10 + 1;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..batches + warm_up {
        let mut timed_safe = || -> anyhow::Result<()> {
            let start = Instant::now();
            for _ in 0..batch {
                safe()?;
            }
            ours.push(start.elapsed().as_nanos() as f64 / batch as f64);
            Ok(settle()?)
        };
        // Who comes first alternates, so that neither always finds the other's cache lines.
        if round % 2 == 0 {
            timed_safe()?;
        }
        let start = Instant::now();
        let mut worst = CUDA_SUCCESS;
        for _ in 0..batch {
            let code = raw();
            if code != CUDA_SUCCESS {
                worst = code;
            }
        }
        theirs.push(start.elapsed().as_nanos() as f64 / batch as f64);
        ensure!(worst == CUDA_SUCCESS, "the raw calls: error {}", worst.0);
        if round % 2 == 1 {
            timed_safe()?;
        }
        settle()?;
    }
    let (ours, theirs) = (&ours[warm_up..], &theirs[warm_up..]);
    let more: Vec<f64> = ours.iter().zip(theirs).map(|(o, t)| o - t).collect();
    Ok(Pair {
        safe: median(ours),
        raw: median(theirs),
        more: median(&more),
    })
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
