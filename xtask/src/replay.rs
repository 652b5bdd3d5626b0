//! Runs a recorded sequence of allocations against each allocator, and draws it.

mod log;
mod picture;
mod player;
mod report;
mod snapshot;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use cuda_core::DeviceAllocator;
use fs_err as fs;

use crate::progress::Progress;
use crate::target::{self, Target};
use crate::{Outcome, refuse};
use log::Log;
use player::Player;
use report::{Report, Row};
use snapshot::{Segment, Snapshot};
use subject::{Meter, Subject};

/// The most that a caching pool may reserve, as a multiple of the log's figure.
const GOAL: f64 = 1.05;

/// Runs a log of allocations against each allocator and compares them.
///
/// `cuda_core::adaptors::Logging` and `xtask/replay/from_pytorch.py` write logs; docs/traces.md
/// describes them. Each allocator runs the whole log once to warm up, then repeatedly on a single
/// thread: `pairs/s` is the number of blocks that the median pass allocates and frees in a second.
/// Without a GPU the simulated driver is used, and the times mean nothing.
///
/// A snapshot, written as JSON by `cuda_core::adaptors::Snapshot`, is not run, only drawn: --svg.
///
/// Exit code 0: it ran; with --check, 1: a caching pool reserved more than 1.05 times what another
/// allocator did according to the log, or called the simulated driver after the first pass; 2: the
/// log cannot be used.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The log, or a snapshot.
    log: PathBuf,
    /// The allocators to run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cache,private,driver,plain")]
    allocator: Vec<Subject>,
    /// Draws memory in use over the log, or a snapshot's content, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Prints the result as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Uses the simulated driver with this many devices, even if there are GPUs.
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Fails if a caching pool misses its goals.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let text = fs::read_to_string(&args.log)?;
    let name = args.log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A log never begins with a brace.
    if text.starts_with('{') {
        return draw_snapshot(args, &text, &name);
    }
    let log = Log::parse(&text).with_context(|| args.log.display().to_string())?;
    let place = args.log.display();
    ensure!(!log.blocks.is_empty(), refuse(format!("{place}: nothing is allocated")));
    let (driver, session) = choose(args, &log)?;
    let progress = Progress::new(args.allocator.len());
    let (mut rows, mut segments) = (Vec::new(), Vec::new());
    for subject in &args.allocator {
        progress.step(subject.name());
        let (row, held) = measure(&log, *subject, session.as_ref())
            .with_context(|| format!("allocator {}", subject.name()))?;
        if segments.is_empty() {
            segments = held;
        }
        rows.push(row);
    }
    progress.finish();
    let title = format!("Memory in use: {name}");
    let report = Report::new(&log, name, driver, rows);
    match args.json {
        true => println!("{:#}", report.json()),
        false => print!("{}", report.text()),
    }
    if let Some(path) = &args.svg {
        let svg = picture::draw(&log, &title, &report.levels(), &segments);
        fs::write(path, svg)?;
    }
    let missed = report.missed(GOAL);
    for miss in missed.iter().filter(|_| args.check) {
        eprintln!("error: {miss}");
    }
    Ok(Outcome::of(!args.check || missed.is_empty()))
}

fn draw_snapshot(args: &Args, text: &str, name: &str) -> anyhow::Result<Outcome> {
    let place = args.log.display();
    let Some(path) = &args.svg else {
        return Err(refuse(format!("{place}: a snapshot is drawn, with --svg")));
    };
    let snapshot = Snapshot::parse(text).with_context(|| place.to_string())?;
    fs::write(path, snapshot.draw(name))?;
    Ok(Outcome::Passed)
}

/// Selects the real driver if it shows a device, else the simulated one, with a session that counts its
/// calls. Also returns a description.
fn choose(args: &Args, log: &Log) -> anyhow::Result<(String, Option<cuda_sim::Session>)> {
    let last = log.streams.iter().map(|stream| stream.device).max();
    let (target, why) = Target::real_or_simulated(args.sim, last.unwrap_or(0).min(63) + 1)?;
    let Target::Simulated { devices, .. } = target else {
        return Ok((target.to_string(), None));
    };
    // Eager mode, since queued frees would count as reserved.
    let config = cuda_sim::Config::default().devices(devices);
    target::install(config.mode(cuda_sim::Mode::Eager))?;
    let driver = format!("simulated driver ({why}): its times mean nothing");
    Ok((driver, Some(cuda_sim::Session::begin())))
}

/// An allocator is measured for this time, or for this number of passes.
const ENOUGH: Duration = Duration::from_millis(500);
const PASSES: usize = 30;

/// Measures an allocator. Also returns the segments that it held at the peak, if it has any.
fn measure(
    log: &Log,
    subject: Subject,
    session: Option<&cuda_sim::Session>,
) -> anyhow::Result<(Row, Vec<Segment>)> {
    let mut player = Player::new(log)?;
    let meter = Meter::new(subject, player.devices())?;
    let allocator = meter.allocator();
    let (peak, _) = log.peak();
    let mut at_peak = None;
    player.pass(&allocator, |step| {
        if step == peak {
            at_peak = Some((meter.at_peak(), meter.pool.as_ref().map(snapshot::segments)));
        }
    })?;
    let (taken, segments) = at_peak.context("the log has a peak")?;
    let (taken, segments) = (taken?, segments.transpose()?.unwrap_or_default());
    let (mut passes, mut calls) = (Vec::new(), 0);
    let total = || session.map_or(0, cuda_sim::Session::total_calls);
    while passes.len() < 3 || passes.iter().sum::<Duration>() < ENOUGH && passes.len() < PASSES {
        player.wait()?;
        let before = total();
        passes.push(player.pass(&allocator, |_| ())?);
        calls += total() - before;
    }
    passes.sort_unstable();
    let median = passes[passes.len() / 2];
    let row = Row {
        allocator: subject.name(),
        caches: meter.pool.is_some(),
        pairs_per_second: Some(log.blocks.len() as f64 / median.as_secs_f64()),
        reserved: meter.reserved(taken)?,
        driver_calls: session.map(|_| calls as f64 / passes.len() as f64),
    };
    allocator.trim(0)?;
    Ok((row, segments))
}
