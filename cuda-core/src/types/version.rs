//! Releases of CUDA.

use std::fmt;

/// A release, such as 12.4, of CUDA's driver, runtime or NVRTC, or of NCCL. Ordered by age.
///
/// ```
/// use cuda_core::Version;
///
/// let version = Version::new(12, 4);
/// assert_eq!(version.to_string(), "12.4");
/// assert!(version > Version::new(11, 8) && version < Version::new(12, 10));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 12 of 12.4.
    pub major: u32,
    /// 4 of 12.4.
    pub minor: u32,
}

impl Version {
    /// The release `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Returns the release with this `CUDA_VERSION`: 12040 is 12.4. `number` is not negative.
    pub(crate) const fn of(number: i32) -> Self {
        let number = number as u32;
        Self::new(number / 1000, number % 1000 / 10)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_releases() {
        assert_eq!(Version::of(11080), Version::new(11, 8));
        assert_eq!(Version::of(12040).to_string(), "12.4");
        assert_eq!(Version::of(13000).to_string(), "13.0");
        assert!(Version::of(12100) > Version::of(12090));
    }
}
