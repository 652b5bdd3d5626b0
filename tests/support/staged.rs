//! How slices are copied.

use cuda_core::Result;
use cuda_core::staging::{self, StagingOptions};

/// The staging options in effect while this lives.
pub struct Staged(StagingOptions);

impl Staged {
    /// So many helper threads, and chunks of so many bytes.
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
