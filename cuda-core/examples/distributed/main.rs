//! Training on the GPUs of many machines, one process for each, with NCCL between them; the job survives the
//! loss of ranks. `--help` describes how to start it, docs/cluster.md how to do so on a cluster.

mod checkpoint;
mod meet;
mod options;
mod place;
#[path = "../shared/mod.rs"]
mod shared;
mod tcp;
mod training;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitCode};
use std::thread;
use std::time::Duration;

use cuda_core::nccl::{Communicator, CommunicatorOptions, UniqueId};
use cuda_core::{Context, Error, NcclError};

use crate::meet::{Call, Directory, LeftOut, Meeting, Plan, token};
use crate::options::{HELP, Options, Start};
use crate::place::Place;
use crate::shared::Result;
use crate::tcp::Tcp;
use crate::training::{Ended, Setup, Trained, Training};

/// How many times the same ranks try.
const TRIES: usize = 3;

/// The exit code of a rank that the others have left out.
const LEFT_OUT: u8 = 3;

const JOIN: Duration = Duration::from_secs(300);
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    ExitCode::from(end(run()))
}

/// Prints the error, if any, and returns the exit code.
fn end(result: Result<u8>) -> u8 {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    let code = shared::report(&*error);
    if error.is::<LeftOut>() { LEFT_OUT } else { code }
}

fn run() -> Result<u8> {
    let options = Options::parse(env::args().skip(1))?;
    if options.help {
        print!("{HELP}");
        return Ok(0);
    }
    match options.start {
        Start::One => {
            let place = Place::find(&options.given, |name| env::var(name).ok())?;
            Rank { place, options: &options, is_thread: false }.run()
        }
        Start::Spawn(count) => in_folder(&options, |dir| spawn(count, dir)),
        Start::Threads(count) => in_folder(&options, |dir| Ok(threads(count, &options, dir))),
    }
}

/// Starts ranks on this machine. Unless the options name a place to meet, the ranks meet in a folder that is
/// removed afterwards.
fn in_folder(options: &Options, start: impl FnOnce(Option<&Path>) -> Result<u8>) -> Result<u8> {
    if options.dir.is_some() || options.tcp.is_some() {
        return start(None);
    }
    let folder = env::temp_dir().join(format!("cuda-core-distributed-{}", token()));
    fs::create_dir(&folder)?;
    let result = start(Some(&folder));
    fs::remove_dir_all(&folder)?;
    result
}

/// Returns a job name of this process's own, for a place where ranks of other jobs may also meet.
fn own_job() -> String {
    format!("own-{}", process::id())
}

/// Starts this program once for each rank. A killed rank counts as lost, not as failed.
fn spawn(count: usize, dir: Option<&Path>) -> Result<u8> {
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    if let Some(at) = words.iter().position(|word| word == "--spawn") {
        words.drain(at..at + 2); // and its number
    }
    words.extend(["--job".into(), own_job().into()]);
    if let Some(dir) = dir {
        words.extend(["--dir".into(), dir.into()]);
    }
    let own = env::current_exe()?;
    let start = |rank: usize| {
        let (rank, size) = (rank.to_string(), count.to_string());
        let mut command = Command::new(&own);
        command.args(&words).args(["--rank", &rank, "--local-rank", &rank, "--size", &size]);
        command.spawn()
    };
    let children = (0..count).map(start).collect::<std::io::Result<Vec<Child>>>()?;
    let mut worst = None;
    for (rank, mut child) in children.into_iter().enumerate() {
        match child.wait()?.code() {
            Some(code) => worst = worst.max(Some(u8::try_from(code).unwrap_or(1))),
            None => eprintln!("rank {rank} was killed"),
        }
    }
    Ok(worst.ok_or("all ranks were killed")?)
}

/// Runs each rank in a thread, with a device of its own.
fn threads(count: usize, options: &Options, dir: Option<&Path>) -> u8 {
    let job = options.given.job.clone().unwrap_or_else(own_job);
    let mut options = options.clone();
    options.dir = options.dir.or(dir.map(Path::to_owned));
    let place = |rank| Place {
        rank,
        size: count,
        local_rank: Some(rank),
        one_machine: true,
        job: job.clone(),
        source: "--threads",
    };
    thread::scope(|scope| {
        let options = &options;
        let start = |rank| {
            let rank = Rank { place: place(rank), options, is_thread: true };
            scope.spawn(move || end(rank.run()))
        };
        let ranks: Vec<_> = (0..count).map(start).collect();
        ranks.into_iter().map(|it| it.join().unwrap_or(1)).max().unwrap_or(0)
    })
}

/// A rank of the job.
struct Rank<'a> {
    place: Place,
    options: &'a Options,
    /// Whether the process has other ranks too.
    is_thread: bool,
}

impl Rank<'_> {
    fn run(&self) -> Result<u8> {
        let Place { rank, size, .. } = self.place;
        let context = self.device()?.context()?;
        let is_simulated = shared::is_simulated(context.device())?;
        let or = |given: Option<u32>, real, simulated| {
            given.unwrap_or(if is_simulated { simulated } else { real })
        };
        let options = self.options;
        let mut meeting = self.meeting()?;
        let checkpoint = self.checkpoint(&meeting);
        let setup = Setup {
            steps: or(options.steps, 400, 24),
            every: or(options.every, 20, 4),
            batch: options.batch.unwrap_or(if is_simulated { 1 << 10 } else { 1 << 16 }),
            checkpoint: Some(&checkpoint),
            limit: self.limit(),
            lost_at: options.kill.filter(|(killed, _)| *killed == rank).map(|(_, step)| step),
        };
        // Runs before the first meeting, at which the others wait for this rank.
        let alone =
            (options.compare && rank == 0).then(|| self.alone(&context, &setup)).transpose()?;
        let mut expected: Vec<usize> = (0..size).collect();
        let mut tries = 0;
        for attempt in 0.. {
            let plan = self.meet(&mut meeting, attempt, &expected)?;
            let first = plan.members[0] == rank;
            if first && attempt > 0 {
                println!("attempt {attempt}: {} of {size} ranks go on", plan.members.len());
            }
            match self.session(&context, &plan, &setup) {
                Ok(Ended::Trained(trained)) => {
                    if first {
                        print(&trained, plan.members.len(), alone);
                        meeting.iter().for_each(Meeting::end);
                        if options.checkpoint.is_none() {
                            fs::remove_file(&checkpoint)?;
                        }
                    }
                    return Ok(0);
                }
                Ok(Ended::Lost) => return self.lost(),
                Err(error) if means_loss(&*error) && size > 1 => {
                    tries = if plan.members == expected { tries + 1 } else { 1 };
                    if tries == TRIES {
                        let why = "NCCL_DEBUG=INFO says more";
                        return Err(
                            format!("{error}: {tries} times with the same ranks: {why}").into()
                        );
                    }
                    eprintln!("rank {rank}: {error}: the ranks that are left meet again");
                    expected = plan.members;
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("ranks are lost or give up")
    }

    /// Selects the device of this rank: the only visible one, or the one with the rank's number on this
    /// machine.
    fn device(&self) -> Result<cuda_core::Device> {
        let Place { rank, size, local_rank, .. } = self.place;
        let devices = shared::devices()?;
        let count = devices.len();
        if let ([only], false) = (devices.as_slice(), self.is_thread) {
            return Ok(*only);
        }
        let Some(number) = self.place.device(count) else {
            return Err(format!(
                "rank {rank} is number {} of its machine, which has {count} devices: start one process for \
                 each device",
                local_rank.unwrap_or(rank)
            )
            .into());
        };
        if local_rank.is_none() && size > 1 {
            println!(
                "rank {rank} takes device {number} of {count}, by its rank: --local-rank names another"
            );
        }
        Ok(devices[number])
    }

    /// Returns the place where the ranks meet, if there are several.
    fn meeting(&self) -> Result<Option<Meeting>> {
        let Place { rank, size, one_machine, ref job, source, .. } = self.place;
        let tcp = |address: String| Some(Meeting::Tcp(Tcp::new(address, job.clone(), rank)));
        let directory =
            |path: PathBuf| Some(Meeting::Directory(Directory { path, job: job.clone(), rank }));
        if size == 1 {
            return Ok(None);
        }
        if let Some(path) = &self.options.dir {
            return Ok(directory(path.clone()));
        }
        if let Some(address) = self.options.tcp.clone().or_else(master) {
            return Ok(tcp(address));
        }
        if one_machine {
            return Ok(directory(env::temp_dir()));
        }
        let what = format!("{size} ranks, by {source}, and no place to meet");
        Err(format!(
            "{what}: give --dir, a directory that all machines share, or --tcp HOST:PORT of rank 0"
        )
        .into())
    }

    fn checkpoint(&self, meeting: &Option<Meeting>) -> PathBuf {
        let name = format!("{}.checkpoint", self.place.job);
        match (&self.options.checkpoint, meeting) {
            (Some(path), _) => path.clone(),
            (None, Some(Meeting::Directory(directory))) => directory.path.join(name),
            (None, Some(Meeting::Tcp(_))) => name.into(),
            (None, None) => env::temp_dir().join(format!("{}-{name}", token())),
        }
    }

    /// The time limit for joining; many ranks take longer to join than their work may take.
    fn join(&self) -> Duration {
        self.options.join.unwrap_or(JOIN)
    }

    fn limit(&self) -> Duration {
        self.options.limit.unwrap_or(LIMIT)
    }

    /// Meets the other ranks. All ranks must come to the first attempt. Later, the last rank to notice a loss
    /// notices it one limit after the first.
    fn meet(
        &self,
        meeting: &mut Option<Meeting>,
        attempt: usize,
        expected: &[usize],
    ) -> Result<Plan> {
        let make = || Ok(UniqueId::new()?.to_bytes());
        let Some(meeting) = meeting else {
            return Ok(Plan { members: expected.to_vec(), id: make()? });
        };
        let all = attempt == 0;
        let within = if all { self.join() } else { 2 * self.limit() };
        meeting.meet(&Call { attempt, expected, all, within }, make)
    }

    /// Trains with the ranks of the plan.
    fn session(&self, context: &Context, plan: &Plan, setup: &Setup<'_>) -> Result<Ended> {
        let own = plan.members.iter().position(|member| *member == self.place.rank);
        let own = own.ok_or("the plan lacks this rank")?;
        let (id, size) = (UniqueId::from_bytes(&plan.id)?, plan.members.len());
        let limits = CommunicatorOptions::new().limit(self.join());
        // SAFETY: each rank of the plan joins once, with a device of its own, and makes the calls of
        // `Training`, which differ in nothing that depends on the rank.
        let communicator =
            unsafe { Communicator::init_rank_with(context, id, own, size, &limits) }?;
        let mut training = Training::prepare(&communicator, setup)?;
        let ended = training.run();
        match &ended {
            Ok(Ended::Trained(_)) => communicator.finalize()?,
            // Like a killed process, the rank ends nothing.
            Ok(Ended::Lost) => {
                mem::forget(training);
                mem::forget(communicator);
            }
            // Aborts the work that waits for a lost rank, so that its memory can be freed.
            Err(_) => communicator.abort()?,
        }
        ended
    }

    /// Trains with this rank alone, and returns its throughput.
    fn alone(&self, context: &Context, setup: &Setup<'_>) -> Result<f64> {
        let setup = Setup { checkpoint: None, lost_at: None, ..setup.clone() };
        let plan = Plan { members: vec![self.place.rank], id: UniqueId::new()?.to_bytes() };
        match self.session(context, &plan, &setup)? {
            Ended::Trained(trained) => {
                print(&trained, 1, None);
                Ok(trained.throughput)
            }
            Ended::Lost => Err("a rank alone was lost".into()),
        }
    }

    /// Ends this rank as if it were lost.
    fn lost(&self) -> Result<u8> {
        eprintln!("rank {}: kills itself", self.place.rank);
        if !self.is_thread {
            // `$PPID` of the shell is this process.
            Command::new("sh").args(["-c", "kill -9 $PPID"]).status()?;
            process::abort();
        }
        Ok(0)
    }
}

/// Returns the address that MASTER_ADDR and MASTER_PORT name; with the next port if torchrun itself listens
/// at that one.
fn master() -> Option<String> {
    let (host, port) = (env::var("MASTER_ADDR").ok()?, env::var("MASTER_PORT").ok()?);
    let taken = env::var("TORCHELASTIC_USE_AGENT_STORE").is_ok_and(|it| it == "True");
    Some(format!("{host}:{}", port.parse::<u16>().ok()?.checked_add(taken.into())?))
}

/// Whether the error is one of an operation with other ranks.
fn means_loss(error: &(dyn std::error::Error + 'static)) -> bool {
    use NcclError::{Aborted, Failed, TimedOut};
    let Some(Error::Nccl(why)) = error.downcast_ref() else { return false };
    matches!(**why, Failed { .. } | TimedOut { .. } | Aborted { .. })
}

fn print(trained: &Trained, ranks: usize, alone: Option<f64>) {
    let Trained { from, throughput, distance } = trained;
    let (speed, noun) = (throughput / 1e6, if ranks == 1 { "rank" } else { "ranks" });
    println!(
        "{ranks} {noun}, from step {from}: {speed:.1} million samples/s, weights off by {distance:.4}"
    );
    if ranks > 1 {
        println!("all {ranks} ranks have the same weights, to the bit");
    }
    if let Some(alone) = alone {
        let share = throughput / alone;
        println!(
            "{share:.2} times the throughput of one rank, {:.0} %",
            100.0 * share / ranks as f64
        );
    }
}
