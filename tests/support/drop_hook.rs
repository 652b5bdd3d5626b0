//! Collects failures of `Drop`s from the drop hook.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_core::{
    Resource,
    drops::{self, DropFailure},
};

/// Collects the hook's reports until it is dropped.
#[derive(Debug)]
pub struct DropReports {
    failures: Arc<Mutex<Vec<DropFailure>>>,
    before: u64,
}

/// What a [`DropReports`] collected.
#[derive(Debug, Default)]
pub struct Reported {
    /// The failures that the hook received.
    pub failures: Vec<DropFailure>,
    /// The failures that the library counted. Those beyond `failures` went to a hook that the test set
    /// itself.
    pub counted: u64,
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

    /// Returns the reports since the last call.
    ///
    /// # Panics
    /// If their number differs from the increase of the counter.
    #[track_caller]
    pub fn take(&mut self) -> Vec<DropFailure> {
        let reports = std::mem::take(&mut *self.log());
        let count = drops::failures();
        assert_eq!(count - self.before, reports.len() as u64, "counted and reported: {reports:?}");
        self.before = count;
        reports
    }

    /// Returns the resources of [`DropReports::take`], in alphabetical order.
    ///
    /// # Panics
    /// As [`DropReports::take`].
    #[track_caller]
    pub fn resources(&mut self) -> Vec<Resource> {
        sorted(self.take().iter().map(|failure| failure.resource).collect())
    }

    /// Returns how often the hook has reported that a resource of this kind could not be released.
    #[must_use]
    pub fn reported(&self, resource: Resource) -> usize {
        let same = |failure: &&DropFailure| failure.resource == resource;
        self.log().iter().filter(same).count()
    }

    /// Removes the hook and returns what it received.
    #[must_use]
    pub fn end(self) -> Reported {
        drops::take_hook();
        let failures = std::mem::take(&mut *self.log());
        Reported { failures, counted: drops::failures() - self.before }
    }

    fn log(&self) -> MutexGuard<'_, Vec<DropFailure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sorts the resources alphabetically.
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
