//! Linear regression by gradient descent. Each rank has samples of its own; the ranks average their
//! gradients, so all have the same weights.

use std::path::Path;
use std::time::{Duration, Instant};

use cuda_core::nccl::{Communicator, Reduction};
use cuda_core::{Context, DeviceBuffer, Module, PinnedBuffer, Stream, kernel};

use crate::checkpoint::Checkpoint;
use crate::shared::Result;

kernel! {
    /// r = x * w - y
    fn residual(x: &[f32], y: &[f32], w: &[f32], r: &mut [f32], dim: u32, n: u32);
}

kernel! {
    /// g = scale * transpose(x) * r, by a block of 256 threads for each element of g
    fn gradient(x: &[f32], r: &[f32], g: &mut [f32], scale: f32, n: u32);
}

kernel! {
    /// y += a * x
    fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

/// The number of weights of the model.
pub(crate) const DIM: usize = 64;

/// The number of batches of each rank, which it uses in turn.
const BATCHES: usize = 8;

/// The step size of gradient descent; less than 2 / (the largest eigenvalue).
const RATE: f32 = 0.9;

/// The amplitude of the samples' noise.
const NOISE: f32 = 0.01;

/// The parameters of the training.
#[derive(Debug, Clone)]
pub(crate) struct Setup<'a> {
    pub(crate) steps: u32,
    /// Samples per rank and step.
    pub(crate) batch: usize,
    /// The number of steps between waits, and between checkpoints.
    pub(crate) every: u32,
    pub(crate) checkpoint: Option<&'a Path>,
    /// How long work may wait for other ranks.
    pub(crate) limit: Duration,
    /// The step before which this rank is lost.
    pub(crate) lost_at: Option<u32>,
}

/// How the training ended.
pub(crate) enum Ended {
    Trained(Trained),
    /// This rank plays a lost rank.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Trained {
    /// The first step of this training.
    pub(crate) from: u32,
    /// Samples of all ranks per second.
    pub(crate) throughput: f64,
    /// The weights' largest distance from those that generated the data.
    pub(crate) distance: f32,
}

/// A pseudorandom number generator: xorshift64*.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.number();
        }
        random
    }

    /// Returns a number from -1 to 1.
    fn number(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        bits as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Returns the weights that generate the samples.
fn truth() -> Vec<f32> {
    let mut random = Random::new(0);
    (0..DIM).map(|_| random.number()).collect()
}

/// Samples on the host: columns of x, and y.
struct Batch {
    x: PinnedBuffer<f32>,
    y: PinnedBuffer<f32>,
}

impl Batch {
    /// Generates the samples of batch `number` of `rank`.
    fn generate(context: &Context, len: usize, (rank, number): (usize, usize)) -> Result<Self> {
        let mut random = Random::new((rank * BATCHES + number + 1) as u64);
        let (mut x, mut y) =
            (PinnedBuffer::new(context, DIM * len)?, PinnedBuffer::new(context, len)?);
        let (columns, sums) = (x.as_mut_slice()?, y.as_mut_slice()?);
        sums.iter_mut().for_each(|sum| *sum = NOISE * random.number());
        for (column, weight) in columns.chunks_mut(len).zip(truth()) {
            for (element, sum) in column.iter_mut().zip(&mut *sums) {
                *element = random.number();
                *sum += weight * *element;
            }
        }
        Ok(Self { x, y })
    }
}

/// The training of one rank.
pub(crate) struct Training<'a> {
    communicator: &'a Communicator,
    setup: &'a Setup<'a>,
    kernels: (residual, gradient, saxpy),
    compute: Stream,
    copies: Stream,
    batches: Vec<Batch>,
    /// The device's x and y for this step and the next.
    near: [[DeviceBuffer<f32>; 2]; 2],
    weights: DeviceBuffer<f32>,
    gradient: DeviceBuffer<f32>,
    residual: DeviceBuffer<f32>,
}

impl<'a> Training<'a> {
    /// Does the preparations that need no other rank.
    pub(crate) fn prepare(communicator: &'a Communicator, setup: &'a Setup<'a>) -> Result<Self> {
        let (context, len, rank) = (communicator.context(), setup.batch, communicator.rank());
        let module = Module::from_ptx(context, include_str!("regression.ptx"))?;
        let update = Module::from_ptx(context, include_str!("../saxpy.ptx"))?;
        let (compute, copies) = (context.create_stream()?, context.create_stream()?);
        let near = || -> Result<_> { Ok([copies.alloc(DIM * len)?, copies.alloc(len)?]) };
        let batches = (0..BATCHES).map(|number| Batch::generate(context, len, (rank, number)));
        Ok(Self {
            kernels: (residual::load(&module)?, gradient::load(&module)?, saxpy::load(&update)?),
            batches: batches.collect::<Result<_>>()?,
            near: [near()?, near()?],
            weights: compute.alloc_zeroed(DIM)?,
            gradient: compute.alloc(DIM)?,
            residual: compute.alloc(len)?,
            communicator,
            setup,
            compute,
            copies,
        })
    }

    /// Trains from the last checkpoint on. An error of NCCL means that a rank was lost.
    pub(crate) fn run(&mut self) -> Result<Ended> {
        let Setup { steps, every, .. } = *self.setup;
        let from = self.begin()?;
        let (mut since, mut measured) = (Instant::now(), from);
        if from < steps {
            self.upload(from)?;
        }
        for step in from..steps {
            if self.setup.lost_at == Some(step) {
                return Ok(Ended::Lost);
            }
            if step + 1 < steps {
                self.upload(step + 1)?;
            }
            self.step(step)?;
            let done = step + 1;
            if done % every == 0 || done == steps {
                // The only wait of this program that depends on other ranks, so it has a limit.
                self.communicator.wait_for(&self.compute, self.setup.limit)?;
                self.save(done)?;
                // Excludes the first steps, which also load the kernels and connect the ranks.
                if measured == from && done < steps {
                    (since, measured) = (Instant::now(), done);
                }
            }
        }
        let seconds = since.elapsed().as_secs_f64();
        let samples = f64::from(steps.saturating_sub(measured))
            * (self.setup.batch * self.communicator.size()) as f64;
        let distance = self.compare()?;
        if distance.is_nan() || distance >= NOISE {
            let why = "more --steps or a larger --batch are needed";
            return Err(
                format!("the weights are off by {distance}, not below {NOISE}: {why}").into()
            );
        }
        Ok(Ended::Trained(Trained { from, throughput: samples / seconds, distance }))
    }

    /// Distributes the checkpoint that the first rank reads to all ranks. Returns its step.
    fn begin(&mut self) -> Result<u32> {
        let mut state = vec![0; 1 + DIM];
        if let Some(path) = self.setup.checkpoint.filter(|_| self.communicator.rank() == 0) {
            if let Some(Checkpoint { step, weights }) = Checkpoint::read(path, DIM)? {
                state = [step].into_iter().chain(weights.into_iter().map(f32::to_bits)).collect();
            }
        }
        let mut shared = self.compute.upload_new(&state)?;
        self.communicator.on(&self.compute)?.broadcast_in_place(&mut shared, 0)?;
        self.communicator.wait_for(&self.compute, self.setup.limit)?;
        let state = self.compute.download_vec(&shared)?;
        let weights: Vec<_> = state[1..].iter().map(|&bits| f32::from_bits(bits)).collect();
        self.compute.upload(&weights, &mut self.weights)?;
        Ok(state[0])
    }

    /// Uploads the samples of a step. The copy waits for the kernels of the step before the last, which used
    /// the same buffers, and overlaps the last step's kernels and all-reduce.
    fn upload(&mut self, step: u32) -> Result {
        let step = step as usize;
        let (Batch { x, y }, near) = (&self.batches[step % BATCHES], &mut self.near[step % 2]);
        self.copies.upload(x, &mut near[0])?;
        self.copies.upload(y, &mut near[1])?;
        // Kernels of this step wait for this point, not for later copies.
        Ok(self.copies.checkpoint()?)
    }

    fn step(&mut self, step: u32) -> Result {
        let Self { compute, weights, gradient, residual, setup, .. } = self;
        let ([x, y], n) = (&self.near[step as usize % 2], setup.batch as u32);
        let mut launch = self
            .kernels
            .0
            .on(compute, x, y, &*weights, &mut *residual, DIM as u32, n)
            .elements(setup.batch);
        // SAFETY: x has DIM columns of n elements, weights DIM elements, the others n.
        unsafe { launch.launch() }?;
        let launch = self.kernels.1.on(compute, x, &*residual, &mut *gradient, 2.0 / n as f32, n);
        // SAFETY: as above; gradient has an element for each of the DIM blocks, of 256 threads.
        unsafe { launch.grid(DIM as u32).block(256).launch() }?;
        self.communicator.on(compute)?.all_reduce_in_place(&mut *gradient, Reduction::Average)?;
        let mut launch =
            self.kernels.2.on(compute, -RATE, &*gradient, &mut *weights, DIM as u32).elements(DIM);
        // SAFETY: both have DIM elements.
        unsafe { launch.launch() }?;
        Ok(())
    }

    /// Writes the checkpoint on the first rank.
    fn save(&self, step: u32) -> Result {
        match self.setup.checkpoint.filter(|_| self.communicator.rank() == 0) {
            None => Ok(()),
            Some(path) => {
                let weights = self.compute.download_vec(&self.weights)?;
                Checkpoint { step, weights }.write(path)
            }
        }
    }

    /// Verifies that all ranks have the same weights, to the bit; returns their distance from the truth.
    fn compare(&mut self) -> Result<f32> {
        let mut all = self.compute.alloc(DIM * self.communicator.size())?;
        self.communicator.on(&self.compute)?.all_gather(&self.weights, &mut all)?;
        self.communicator.wait_for(&self.compute, self.setup.limit)?;
        let all = self.compute.download_vec(&all)?;
        let (first, bits) = (&all[..DIM], |weights: &[f32]| -> Vec<_> {
            weights.iter().map(|it| it.to_bits()).collect()
        });
        if let Some(rank) = all.chunks(DIM).position(|weights| bits(weights) != bits(first)) {
            return Err(format!("the weights of rank {rank} are not those of rank 0").into());
        }
        let distances = first.iter().zip(truth()).map(|(weight, truth)| (weight - truth).abs());
        Ok(distances.fold(0.0, f32::max))
    }
}
