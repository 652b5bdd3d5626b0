//! The progress of a task.

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of a task, on standard error: a bar on a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether each step is a line where there is no terminal.
    has_lines: bool,
}

impl Progress {
    /// Elsewhere than on a terminal it is one line per step.
    pub(crate) fn new(steps: usize) -> Self {
        Self { has_lines: true, ..Self::bar(steps) }
    }

    /// Elsewhere than on a terminal it is nothing.
    pub(crate) fn bar(steps: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        // Hidden by itself where there is no terminal.
        let bar = ProgressBar::new(steps as u64)
            .with_style(style.unwrap_or(ProgressStyle::default_bar()));
        Self { bar, has_lines: false }
    }

    /// Announces the next step.
    pub(crate) fn step(&self, what: String) {
        self.bar.inc(1);
        if self.has_lines && self.bar.is_hidden() {
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
