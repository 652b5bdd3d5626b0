//! The progress of a task.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The interval between lines for many short steps without a terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// The progress of a task, on standard error: a bar on a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Without a terminal, a step prints a line if this much time has passed since the last line.
    between_lines: Duration,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Creates a display with a line per step if there is no terminal.
    pub(crate) fn new(steps: usize) -> Self {
        Self { between_lines: Duration::ZERO, ..Self::bar(steps) }
    }

    /// Creates a display for many short steps; prints a line twice a minute if there is no terminal.
    pub(crate) fn bar(steps: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        // The bar hides itself if there is no terminal.
        let bar = ProgressBar::new(steps as u64)
            .with_style(style.unwrap_or(ProgressStyle::default_bar()));
        Self { bar, between_lines: BETWEEN_LINES, last_line: Cell::new(Instant::now()) }
    }

    /// Announces the next step.
    pub(crate) fn step(&self, what: String) {
        self.bar.inc(1);
        if self.bar.is_hidden() && self.last_line.get().elapsed() >= self.between_lines {
            self.last_line.set(Instant::now());
            let steps = self.bar.length().unwrap_or_default();
            eprintln!("[{}/{steps}] {what}", self.bar.position());
        }
        self.bar.set_message(what);
    }

    /// Prints something without damaging the bar.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
