//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::place::Given;
use crate::shared::Result;

pub(crate) const HELP: &str = "\
Trains a linear regression on all GPUs that it is started for, one process for each.

    srun ./distributed --dir DIR               Slurm: one task for each GPU
    mpirun -n 2 ./distributed                  Open MPI
    torchrun --no-python .. ./distributed      torchrun: MASTER_ADDR and MASTER_PORT
    ./distributed --rank R --size N --dir DIR  by hand, once for each rank
    ./distributed                              one rank
    ./distributed --spawn N                    N processes on this machine
    ./distributed --threads N                  N threads in one process

Who this process is; options go before the variables of Open MPI, Slurm, PMIx and torchrun:
    --rank R --size N   this rank, of how many
    --local-rank L      the number of its device; unused if it sees only one. Where no launcher gives it:
                        the rank modulo the number of devices
    --job NAME          distinguishes jobs that meet in one directory; default: the launcher's number

Where the ranks meet:
    --dir DIR           a directory that all machines share; default on one machine: that of temporary files
    --tcp HOST:PORT     a port of rank 0; default: MASTER_ADDR:MASTER_PORT, if set
    --join SECONDS      how long the first meeting waits for all ranks, and NCCL for those that join or
                        connect; default: 300
    --limit SECONDS     how long the work of --every steps may take before a rank counts as lost; default: 10

What is trained:
    --steps N           default: 400
    --batch N           samples of each rank in a step; default: 65536
    --every N           steps between checkpoints; default: 20
    --checkpoint FILE   where they are; if there is one, the training goes on from it. Default: a file in
                        DIR, removed in the end
    --compare           first measures one rank alone
    --kill R@STEP       rank R kills itself before that step, to show what the others do

Exit code: 0 trained, perhaps with fewer ranks; 1 error; 2 the machine lacks a GPU or NCCL; 3 the others
went on without this rank.
";

/// The ranks that this process starts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Start {
    /// This process is a single rank, whatever started it.
    #[default]
    One,
    Spawn(usize),
    Threads(usize),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) start: Start,
    pub(crate) given: Given,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) tcp: Option<String>,
    pub(crate) join: Option<Duration>,
    pub(crate) limit: Option<Duration>,
    pub(crate) steps: Option<u32>,
    pub(crate) batch: Option<usize>,
    pub(crate) every: Option<u32>,
    pub(crate) checkpoint: Option<PathBuf>,
    pub(crate) compare: bool,
    /// A rank that kills itself, and the step before which it does so.
    pub(crate) kill: Option<(usize, u32)>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("{word} needs a value: see --help"));
            match &*word {
                "--help" | "-h" => options.help = true,
                "--compare" => options.compare = true,
                "--rank" => options.given.rank = Some(number(&word, &value()?, 0)?),
                "--size" => options.given.size = Some(number(&word, &value()?, 1)?),
                "--local-rank" => options.given.local_rank = Some(number(&word, &value()?, 0)?),
                "--job" => options.given.job = Some(value()?),
                "--dir" => options.dir = Some(value()?.into()),
                "--tcp" => options.tcp = Some(value()?),
                "--join" => options.join = Some(seconds(&word, &value()?)?),
                "--limit" => options.limit = Some(seconds(&word, &value()?)?),
                "--steps" => options.steps = Some(number(&word, &value()?, 1)?),
                "--batch" => options.batch = Some(number(&word, &value()?, 1)?),
                "--every" => options.every = Some(number(&word, &value()?, 1)?),
                "--checkpoint" => options.checkpoint = Some(value()?.into()),
                "--spawn" => options.start = Start::Spawn(number(&word, &value()?, 1)?),
                "--threads" => options.start = Start::Threads(number(&word, &value()?, 1)?),
                "--kill" => {
                    let value = value()?;
                    let (rank, step) =
                        value.split_once('@').ok_or("--kill takes RANK@STEP, such as 1@50")?;
                    options.kill = Some((number(&word, rank, 0)?, number(&word, step, 0)?));
                }
                _ => return Err(format!("{word} is no option: see --help").into()),
            }
        }
        if options.dir.is_some() && options.tcp.is_some() {
            return Err("the ranks meet by --dir or by --tcp: give one of them".into());
        }
        Ok(options)
    }
}

fn number<T: TryFrom<u64>>(option: &str, value: &str, least: u64) -> Result<T> {
    let number = value.parse().ok().filter(|number| *number >= least);
    let number = number.and_then(|number| T::try_from(number).ok());
    Ok(number.ok_or_else(|| format!("{option} takes a number from {least} on, not {value}"))?)
}

fn seconds(option: &str, value: &str) -> Result<Duration> {
    let seconds = value.parse().ok().and_then(|value| Duration::try_from_secs_f64(value).ok());
    let seconds = seconds.filter(|it| !it.is_zero() && *it < Duration::from_secs(1 << 30));
    Ok(seconds.ok_or_else(|| format!("{option} takes seconds, such as 0.5, not {value}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> std::result::Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned)).map_err(|it| it.to_string())
    }

    #[test]
    fn options_are_read() {
        let options =
            parse("--rank 1 --size 2 --kill 1@50 --limit 0.5 --threads 4 --compare").unwrap();
        assert_eq!((options.given.rank, options.given.size), (Some(1), Some(2)));
        assert_eq!((options.kill, options.start), (Some((1, 50)), Start::Threads(4)));
        assert_eq!((options.limit, options.compare), (Some(Duration::from_millis(500)), true));
        assert_eq!(parse("").unwrap(), Options::default());
    }

    #[test]
    fn errors_name_the_option() {
        for (line, named) in [
            ("--size 0", "--size"),
            ("--steps", "--steps"),
            ("--limit -1", "--limit"),
            ("--kill 50", "RANK@STEP"),
            ("--kil 1@5", "--kil is no option"),
            ("--dir a --tcp b:1", "one of them"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn the_help_has_every_option() {
        let source = include_str!("options.rs");
        let options = source.lines().filter_map(|line| line.trim().strip_prefix("\"--"));
        let mut count = 0;
        for option in options.filter_map(|rest| rest.split_once('"')).map(|(option, _)| option) {
            assert!(HELP.contains(&format!("--{option}")) || option == "help", "--{option}");
            count += 1;
        }
        assert_eq!(count, 17);
    }
}
