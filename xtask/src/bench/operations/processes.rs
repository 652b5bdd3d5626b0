//! NCCL's all-reduces on two devices, in two processes, compared with the same calls of the raw library.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use cuda_core::Device;
use cuda_core::nccl::{Communicator, CommunicatorOptions, Reduction, UniqueId};

use super::collectives::{RANKS, Raw, RawCalls};
use crate::bench::measure::{median_of, once};
use crate::bench::raw::check;
use crate::bench::run::Side;
use crate::bench::{Effort, Goal, Operation};
use crate::process::own_program;
use crate::refuse;

pub(super) fn operation() -> Operation {
    let name = "all-reduce + wait 1 GiB, 2 processes";
    Operation::fresh(name, as_rank).goal(Goal::Ratio(1.01)).gpus(2)
}

/// The variable with the communicator's id, set by the process that starts the other one.
const ID: &str = "CUDA_CORE_BENCH_NCCL_ID";

const BYTES: usize = 1 << 30;

/// Times all-reduces of two ranks: this process is rank 0, and starts rank 1 as a process that runs the same
/// sample.
fn as_rank(_: Device, effort: Effort, side: Side) -> anyhow::Result<f64> {
    let why = "the simulated NCCL has the ranks of one process";
    ensure!(effort != Effort::SIMULATED, refuse(why));
    if let Ok(id) = env::var(ID) {
        let bytes: Vec<u8> = serde_json::from_str(&id)?;
        return time(1, &UniqueId::from_bytes(&bytes)?, side);
    }
    let id = UniqueId::new()?;
    let bytes = serde_json::to_string(&id.to_bytes()[..])?;
    let mut other = Command::new(own_program()?);
    other.args(env::args_os().skip(1)).env(ID, bytes).stdout(Stdio::null());
    let mut other = other.spawn().context("cannot start the other rank")?;
    let took = time(0, &id, side);
    if took.is_err() {
        // The other rank waits for this one.
        let _ = other.kill();
    }
    let ended = other.wait()?;
    let took = took?;
    ensure!(ended.success(), "the other rank failed");
    Ok(took)
}

/// Returns the median time of a call, after some uncounted ones. All ranks make the same number of calls.
fn timed(mut reduce: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    (0..5).try_for_each(|_| reduce())?;
    median_of(20, || once(&mut reduce))
}

fn time(rank: usize, id: &UniqueId, side: Side) -> anyhow::Result<f64> {
    let context = Device::get(rank as u32)?.context()?;
    let options = CommunicatorOptions::new().blocking(true);
    // SAFETY: both processes run this function, each as a rank of its own.
    let communicator =
        unsafe { Communicator::init_rank_with(&context, id, rank, RANKS, &options) }?;
    let stream = context.create_stream()?;
    let mut buffer = stream.alloc_zeroed::<f32>(BYTES / size_of::<f32>())?;
    if side == Side::Ours {
        return timed(|| {
            communicator.on(&stream)?.all_reduce_in_place(&mut buffer, Reduction::Sum)?;
            Ok(stream.synchronize()?)
        });
    }
    let _current = context.enter()?;
    let raw = Raw {
        calls: RawCalls::find(false)?,
        communicators: vec![communicator.as_raw()],
        streams: vec![stream],
        buffers: vec![buffer],
        _ranks: None,
    };
    timed(|| {
        check("the raw all-reduce", raw.reduce())?;
        Ok(raw.streams[0].synchronize()?)
    })
}
