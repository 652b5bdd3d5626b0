//! Measures whether an operation costs the same however many streams exist, or existed: on a driver
//! that does nothing, so that only the library's own time is measured.

mod driver;
mod modes;

use std::env;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::Outcome;
use crate::progress::Progress;
use crate::table::Table;
use modes::{MODES, Mode};

/// How many streams, buffers or other objects a mode has.
const SIZES: [usize; 3] = [10, 1_000, 20_000];

/// How many times as much an operation may cost with a hundred times as many objects, and again
/// with twenty times as many: room for a logarithm, and for caches that no longer hold everything.
/// A linear cost would grow by those factors.
const MOST: f64 = 5.0;

/// The fastest of this many processes counts.
const RUNS: usize = 5;

/// A mode that takes longer counts as not flat.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures each mode in fresh processes, one per size.
pub(super) fn run(wanted: impl Fn(&str) -> bool) -> anyhow::Result<Outcome> {
    let modes: Vec<&Mode> = MODES.iter().filter(|mode| wanted(mode.name)).collect();
    if modes.is_empty() {
        bail!(super::nothing_of_that_name());
    }
    let progress = Progress::new(modes.len());
    let mut table = Table::new(["nanoseconds for", "10", "1,000", "20,000", "shape"]);
    let mut grown = 0;
    for mode in &modes {
        progress.step(mode.what.to_owned());
        let found = SIZES.map(|size| fastest(mode.name, size));
        let [few, many, most] = found.each_ref().map(|cost| match cost {
            Ok(Some(cost)) => format!("{cost:.0}"),
            Ok(None) => format!("no end in {} s", PATIENCE.as_secs()),
            Err(error) => format!("{error:#}"),
        });
        let shape = shape(&found.map(|cost| cost.ok().flatten()));
        grown += usize::from(shape != FLAT);
        table.row([mode.what.to_owned(), few, many, most, shape.to_owned()]);
    }
    progress.finish();
    print!("{table}");
    println!("\n{} of {} are flat", modes.len() - grown, modes.len());
    Ok(match grown {
        0 => Outcome::Passed,
        _ => Outcome::Failed,
    })
}

const FLAT: &str = "flat";

fn shape(costs: &[Option<f64>; 3]) -> &'static str {
    let within = |pair: &[Option<f64>]| match pair {
        [Some(fewer), Some(more)] => *more <= MOST * fewer,
        _ => false,
    };
    match costs.windows(2).all(within) {
        true => FLAT,
        false => "GROWS",
    }
}

/// [`None`] if the process did not end in time.
fn fastest(mode: &str, size: usize) -> anyhow::Result<Option<f64>> {
    let mut fastest: Option<f64> = None;
    for _ in 0..RUNS {
        let Some(cost) = sample_elsewhere(mode, size)? else {
            return Ok(None);
        };
        fastest = Some(fastest.map_or(cost, |least| least.min(cost)));
    }
    Ok(fastest)
}

fn sample_elsewhere(mode: &str, size: usize) -> anyhow::Result<Option<f64>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["bench", "--scale-of", mode, "--size", &size.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a fresh process")?;
    if !ends(&mut child)? {
        return Ok(None);
    }
    let mut answer = String::new();
    let stdout = child.stdout.take().context("it was piped")?;
    { stdout }.read_to_string(&mut answer)?;
    let cost = answer.trim().parse();
    Ok(Some(cost.with_context(|| format!("a fresh process answered {answer:?}"))?))
}

/// Waits for a process, and kills it if it takes too long.
fn ends(child: &mut Child) -> anyhow::Result<bool> {
    let until = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(true)
}

/// Prints nanoseconds per operation for the process that started this one. The mode's objects are
/// not dropped: the process ends.
pub(super) fn sample(name: &str, size: usize) -> anyhow::Result<Outcome> {
    let Some(mode) = MODES.iter().find(|mode| mode.name == name) else {
        bail!(super::nothing_of_that_name());
    };
    driver::install()?;
    println!("{}", (mode.cost)(size)?);
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linear_grows_and_a_logarithm_does_not() {
        assert_eq!(shape(&[Some(100.0), Some(150.0), Some(300.0)]), FLAT);
        assert_eq!(shape(&[Some(10_000.0), Some(150.0), Some(300.0)]), FLAT);
        assert_ne!(shape(&[Some(100.0), Some(150.0), Some(3000.0)]), FLAT);
        assert_ne!(shape(&[Some(100.0), Some(2000.0), Some(2000.0)]), FLAT);
        assert_ne!(shape(&[Some(100.0), Some(150.0), None]), FLAT);
    }
}
