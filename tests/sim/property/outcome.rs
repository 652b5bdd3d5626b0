//! The outcome of a step, and its effect on the model.

use std::fmt;
use std::ops::Range;

use cuda_core::{Device, Error, Rejected, Stream, StreamKind};

/// The known value of each element; [`None`] if no operation wrote it, or a failed one did.
pub(super) type Contents = Vec<Option<u8>>;

/// The result of an operation: whether it took place.
pub(super) type Outcome = Result<bool, Departure>;

pub(super) type Done = Result<(), Departure>;

/// A departure of a step from the model.
#[derive(Debug)]
pub(super) enum Departure {
    /// An operation failed: a departure unless a driver call had failed before.
    Failed(Error),
    /// Always a departure.
    Wrong(String),
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Wrong(message) => f.write_str(message),
        }
    }
}

impl From<Error> for Departure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<X> From<Rejected<X>> for Departure {
    fn from(rejected: Rejected<X>) -> Self {
        Self::Failed(rejected.error)
    }
}

impl From<String> for Departure {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

/// Checks that the operation succeeds if the stream is on the memory's device, and fails otherwise.
pub(super) fn allowed<K: StreamKind>(
    stream: &Stream<K>,
    devices: &[Device],
    result: cuda_core::Result<()>,
) -> Outcome {
    match (devices.contains(&stream.device()), result) {
        (true, Ok(())) => Ok(true),
        (false, Err(Error::WrongDevice(_))) => Ok(false),
        (false, Ok(())) => Err(Departure::Wrong("not refused".to_owned())),
        (_, Err(error)) => Err(Departure::Failed(error)),
    }
}

/// Updates the model of the operation's target: `new` if it took place, unchanged if it was refused, unknown
/// if it failed.
pub(super) fn note(
    target: &mut [Option<u8>],
    outcome: Outcome,
    new: impl FnOnce(&mut [Option<u8>]),
) -> Done {
    match outcome {
        Ok(true) => new(target),
        Ok(false) => {}
        Err(departure) => {
            target.fill(None);
            return Err(departure);
        }
    }
    Ok(())
}

/// Compares the elements whose values are known.
pub(super) fn same(bytes: &[u8], contents: &[Option<u8>]) -> Result<(), String> {
    let wrong = |(byte, known): (&u8, &Option<u8>)| known.is_some_and(|known| known != *byte);
    match bytes.iter().zip(contents).position(wrong) {
        None if bytes.len() == contents.len() => Ok(()),
        Some(at) if bytes.len() > 64 => Err(format!(
            "at {at} of {} stands {}, expected {:?}",
            bytes.len(),
            bytes[at],
            contents[at]
        )),
        at => Err(format!("at {at:?} {bytes:?}, expected {contents:?}")),
    }
}

pub(super) fn known(bytes: &[u8]) -> Contents {
    bytes.iter().copied().map(Some).collect()
}

/// Shortens two ranges to the same length.
pub(super) fn alike(a: Range<usize>, b: Range<usize>) -> (Range<usize>, Range<usize>) {
    let len = a.len().min(b.len());
    (a.start..a.start + len, b.start..b.start + len)
}

/// Returns bytes that differ from their neighbours, and from those of the previous page.
pub(super) fn pattern(len: usize, value: u8) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8 ^ value).collect()
}

pub(super) fn pick<T>(items: &mut [T], index: u8) -> Option<&mut T> {
    let len = items.len();
    items.get_mut(usize::from(index).checked_rem(len)?)
}

pub(super) fn take<T>(items: &mut Vec<T>, index: u8) -> Option<T> {
    let index = usize::from(index).checked_rem(items.len())?;
    Some(items.remove(index))
}

/// Returns two different elements, if there are two.
pub(super) fn two<T>(items: &mut [T], first: u8, second: u8) -> Option<(&mut T, &mut T)> {
    let others = items.len().checked_sub(1)?;
    let first = usize::from(first) % items.len();
    let second = (first + 1 + usize::from(second).checked_rem(others)?) % items.len();
    let (low, high) = items.split_at_mut(first.max(second));
    let (a, b) = (&mut low[first.min(second)], &mut high[0]);
    Some(if first < second { (a, b) } else { (b, a) })
}
