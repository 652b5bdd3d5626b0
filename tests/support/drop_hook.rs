//! Failures of `Drop`s, as the drop hook receives them.

use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::{
    Resource,
    drops::{self, DropFailure},
};

/// Collects the hook's reports until it is dropped.
pub struct DropReports {
    failures: Arc<Mutex<Vec<DropFailure>>>,
    before: u64,
}

impl DropReports {
    /// Sets the process's hook.
    #[must_use]
    pub fn listen() -> Self {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let log = failures.clone();
        drops::set_hook(move |failure: &DropFailure| {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(failure.clone());
        });
        Self { failures, before: drops::failures() }
    }

    /// The reports since the last call.
    ///
    /// # Panics
    /// If their number is not the counter's.
    #[track_caller]
    pub fn take(&mut self) -> Vec<DropFailure> {
        let mut log = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = std::mem::take(&mut *log);
        let count = drops::failures();
        assert_eq!(count - self.before, reports.len() as u64, "counted and reported: {reports:?}");
        self.before = count;
        reports
    }

    /// The resources of [`DropReports::take`], in alphabetical order.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn resources(&mut self) -> Vec<Resource> {
        sorted(self.take().iter().map(|failure| failure.resource).collect())
    }
}

/// In alphabetical order.
#[must_use]
pub fn sorted(mut resources: Vec<Resource>) -> Vec<Resource> {
    resources.sort_by_key(|resource| format!("{resource:?}"));
    resources
}

impl Drop for DropReports {
    fn drop(&mut self) {
        drops::take_hook();
    }
}
