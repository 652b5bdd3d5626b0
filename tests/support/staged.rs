//! Sets how slices are copied.

use cuda_core::Result;
use cuda_core::staging::{self, StagingOptions};

/// Sets staging options until it is dropped.
pub struct Staged(StagingOptions);

impl Staged {
    /// Sets the number of helper threads and the size of a chunk in bytes.
    ///
    /// # Errors
    /// For a size that chunks cannot have.
    pub fn by(threads: usize, chunk: usize) -> Result<Self> {
        let before = staging::options()?;
        staging::set_options(StagingOptions::new(threads, chunk))?;
        Ok(Self(before))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        staging::set_options(self.0).expect("they were in use");
    }
}
