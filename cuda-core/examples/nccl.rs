//! Averages gradients over all GPUs of the process with NCCL.

mod shared;

use std::process::ExitCode;

use cuda_core::nccl::{Ranks, Reduction};
use cuda_core::{Context, Device, Stream};

/// The number of elements of a gradient.
const ELEMENTS: usize = 1 << 16;
const STEPS: usize = 3;

fn example() -> shared::Result {
    let contexts = Device::contexts(shared::devices()?)?;
    let streams =
        contexts.iter().map(Context::create_stream).collect::<Result<Vec<Stream>, _>>()?;
    let ranks = Ranks::init_all(&contexts)?;
    let mut gradients = Vec::new();
    for stream in &streams {
        gradients.push(stream.alloc::<f32>(ELEMENTS)?);
    }
    for step in 0..STEPS {
        for (rank, (stream, gradient)) in streams.iter().zip(&mut gradients).enumerate() {
            stream.fill(gradient, (step + rank) as f32)?; // stands in for a kernel
        }
        ranks.on(&streams)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
    }
    ranks.wait(&streams)?; // with a limit, in case a device fails

    let expected = (STEPS - 1) as f32 + (ranks.len() - 1) as f32 / 2.0;
    for (stream, gradient) in streams.iter().zip(&gradients) {
        assert_eq!(stream.download_vec(gradient)?, vec![expected; ELEMENTS]);
    }
    println!("{} devices have the average {expected}", ranks.len());
    ranks.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
