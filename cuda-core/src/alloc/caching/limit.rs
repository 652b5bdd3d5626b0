//! The limit of a caching pool.

use std::str::FromStr;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::util::{from, parse_bytes};

/// The most that a [`CachingPool`](crate::CachingPool) takes from a device, in each of its contexts. A device
/// has one context, the primary one, unless a program creates others. The pool keeps each context's memory
/// apart, and a shortage in one does not free memory of another.
///
/// As text, a number of bytes or a percentage of the device's memory: `1073741824`, `1GiB`, `50%`,
/// `12.5%`. The texts `0` and `0%` are no limit. As a value zero is refused: a program that computes what is
/// left of its share would otherwise lift the limit when nothing is left. Functions that take a limit also
/// take a number of bytes, or an `Option` of one, like
/// [`PinnedPool::set_limit`](crate::PinnedPool::set_limit).
///
/// ```
/// use cuda_core::pools::PoolLimit;
///
/// assert_eq!("1024".parse::<PoolLimit>()?, PoolLimit::Bytes(1024));
/// assert_eq!("1GiB".parse::<PoolLimit>()?, PoolLimit::from(1 << 30));
/// assert_eq!("5%".parse::<PoolLimit>()?, PoolLimit::Fraction(0.05));
/// assert_eq!("0%".parse::<PoolLimit>()?, PoolLimit::None);
/// assert!("101%".parse::<PoolLimit>().is_err());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum PoolLimit {
    /// No limit: as much as the device gives.
    #[default]
    None,
    /// This many bytes in each context, not zero.
    Bytes(usize),
    /// This fraction of each device's memory, above 0 and up to 1.
    Fraction(f64),
}

impl PoolLimit {
    /// The limit in bytes on `device`.
    pub(super) fn bytes(self, device: Device) -> Result<Option<usize>> {
        Ok(match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Fraction(share) => Some((device.known_memory()? as f64 * share) as usize),
        })
    }

    /// Refuses zero, and a fraction that is not between 0 and 1.
    pub(super) fn check(self) -> Result<Self> {
        match self {
            Self::Bytes(0) | Self::Fraction(0.0) => {
                Err(Error::invalid(OP, "zero was given; `PoolLimit::None` is no limit"))
            }
            Self::Fraction(share) => {
                let why = || format!("{share} was given; a fraction is between 0 and 1");
                Error::unless_with((0.0..=1.0).contains(&share), OP, why).map(|()| self)
            }
            other => Ok(other),
        }
    }

    /// Parses the limit `text`, which `op` was given.
    pub(super) fn parse(op: &'static str, text: &str) -> Result<Self> {
        let form = "bytes such as 64MiB or 2GiB, or a percentage from 0% to 100%";
        let malformed = || Error::malformed(op, text, form);
        let limit = match text.strip_suffix('%') {
            // The number must begin with a digit: no sign, no infinity.
            Some(percent) if percent.starts_with(|first: char| first.is_ascii_digit()) => {
                Self::Fraction(percent.parse::<f64>().map_err(|_| malformed())? / 100.0)
            }
            _ => Self::Bytes(parse_bytes(text).ok_or_else(malformed)?),
        };
        match limit {
            Self::Bytes(0) | Self::Fraction(0.0) => Ok(Self::None),
            limit => limit.check().map_err(|_| malformed()),
        }
    }
}

const OP: &str = "limit of a memory pool";

from! {
    [] usize => PoolLimit: |bytes| Self::Bytes(bytes);
    [] Option<usize> => PoolLimit: |bytes| bytes.map_or(Self::None, Self::Bytes);
}

impl FromStr for PoolLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(OP, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h14_zero_is_refused() {
        for zero in [PoolLimit::Bytes(0), PoolLimit::Fraction(0.0), PoolLimit::Fraction(-0.0)] {
            let text = zero.check().unwrap_err().to_string();
            assert!(text.ends_with("`PoolLimit::None` is no limit"), "{zero:?}: {text}");
        }
        for share in [1.5, -0.5, f64::NAN] {
            let text = PoolLimit::Fraction(share).check().unwrap_err().to_string();
            assert!(text.ends_with("was given; a fraction is between 0 and 1"), "{text}");
        }
        let least = PoolLimit::Fraction(f64::MIN_POSITIVE);
        assert_eq!(least.check().unwrap(), least);
    }

    #[test]
    fn h14_limits_as_text() {
        let parsed = |text: &str| text.parse::<PoolLimit>();
        assert_eq!(parsed("1024").unwrap(), PoolLimit::Bytes(1024));
        assert_eq!(parsed("6 MiB").unwrap(), PoolLimit::Bytes(6 << 20));
        assert_eq!(parsed("5%").unwrap(), PoolLimit::Fraction(0.05));
        assert_eq!(parsed("100%").unwrap(), PoolLimit::Fraction(1.0));
        assert_eq!(parsed("0").unwrap(), PoolLimit::None);
        assert_eq!(parsed("0%").unwrap(), PoolLimit::None);
        for bad in ["101%", "-1", "abc", "", "%", "5 %", "+5", "inf%", "1e999%", "nan%"] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn h14_bytes_are_a_limit() {
        assert_eq!(PoolLimit::from(7), PoolLimit::Bytes(7));
        assert_eq!(PoolLimit::from(Some(7)), PoolLimit::Bytes(7));
        assert_eq!(PoolLimit::from(None), PoolLimit::None);
    }
}
