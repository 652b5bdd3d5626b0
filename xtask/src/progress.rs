//! The progress of a task.

use std::cell::Cell;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of a task, on standard error: a bar on a terminal, elsewhere one line per step.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
    done: Cell<usize>,
}

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
            ProgressBar::new(steps as u64).with_style(style.unwrap_or(ProgressStyle::default_bar()))
        });
        Self { bar, steps, done: Cell::new(0) }
    }

    /// Announces the next step.
    pub(crate) fn step(&self, what: String) {
        self.done.set(self.done.get() + 1);
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(what);
            }
            None => eprintln!("[{}/{}] {what}", self.done.get(), self.steps),
        }
    }

    /// Prints something without damaging the bar.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
