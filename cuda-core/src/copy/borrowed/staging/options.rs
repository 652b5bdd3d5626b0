//! Options of copies of large borrowed slices.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::copying;
use crate::error::{Error, Result};
use crate::process::{driver, workers};
use crate::util::{lock, parse_bytes, setting};

/// Environment variables of the options.
const THREADS: &str = "CUDA_CORE_COPY_THREADS";
const CHUNK: &str = "CUDA_CORE_COPY_CHUNK";

/// The number of threads beyond which memory, not threads, limits copies. More threads write in bursts,
/// which slow down the device's concurrent reads.
const USEFUL: usize = 8;

/// As [`USEFUL`], if the threads' writes [go to the cache that all cores share](copying::can_demote).
const USEFUL_DEMOTERS: usize = 14;

/// The default size of a chunk.
const USUAL_CHUNK: usize = 8 << 20;

const SMALLEST_CHUNK: usize = 4 << 10;
const LARGEST_CHUNK: usize = 64 << 20;

/// How [`Stream::upload`](crate::Stream::upload), [`Stream::download`](crate::Stream::download),
/// [`Stream::scope`](crate::Stream::scope) and the same methods of a
/// [`DeviceGroup`](crate::DeviceGroup) copy large slices: the number of threads, and the size of the
/// pinned chunks.
///
/// The options hold for the whole process. Unless [set](set_staging_options), they come from
/// `CUDA_CORE_COPY_THREADS` (a number) and `CUDA_CORE_COPY_CHUNK` (bytes, or `512KiB`, `4MiB`). By
/// default there is one thread fewer than there are cores, at most 7 (13, if the processor has
/// `CLDEMOTE`), and a chunk is 8 MiB.
///
/// ```no_run
/// // A program that has its own use for the machine's cores.
/// let mut options = cuda_core::staging::options()?;
/// options.threads = 3;
/// cuda_core::staging::set_options(options)?;
/// let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let buffer = stream.alloc_zeroed::<f32>(1 << 28)?;
/// let mut back = vec![1.0; buffer.len()];
/// stream.download(&buffer, &mut back)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StagingOptions {
    /// The number of threads that help the calling thread, at most 64; with zero it copies alone. The
    /// first copy that needs them starts them; they sleep while there is nothing to copy. If no number
    /// was set, [`DeviceGroup::scatter`](crate::DeviceGroup::scatter) to several devices uses twice as
    /// many, if there are enough cores.
    pub threads: usize,
    /// The size of a chunk in bytes, a power of two from 4 KiB to 64 MiB. A copy uses up to eight
    /// chunks.
    pub chunk: usize,
}

impl StagingOptions {
    /// Creates options with this number of threads, and this chunk size in bytes.
    pub const fn new(threads: usize, chunk: usize) -> Self {
        Self { threads, chunk }
    }

    fn check(self) -> Result<Self> {
        if self.threads > workers::MOST {
            return Err(bad_threads(&self.threads.to_string()));
        }
        let fits = (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(&self.chunk);
        if !fits || !self.chunk.is_power_of_two() {
            return Err(bad_chunk(&self.chunk.to_string()));
        }
        Ok(self)
    }
}

/// The options in force, and what follows from them.
#[derive(Clone, Copy)]
pub(crate) struct Staging {
    pub(crate) options: StagingOptions,
    /// The number of threads that help to fill the chunks of a scatter, where each of several devices
    /// reads its own chunks. Some thirty threads fill chunks as fast as two devices read them; more
    /// threads are no faster.
    pub(crate) threads_for_parts: usize,
}

static STAGING: Mutex<Option<Staging>> = Mutex::new(None);

/// The size of a chunk, readable without the lock.
static CHUNK_NOW: AtomicUsize = AtomicUsize::new(USUAL_CHUNK);

/// Whether `bytes` are more than a chunk, or more than `limit`.
pub(crate) fn is_more_than(bytes: usize, limit: usize) -> bool {
    bytes > limit || bytes > CHUNK_NOW.load(Ordering::Relaxed)
}

/// Returns the options of copies of large borrowed slices. No driver call.
///
/// # Errors
/// [`Error::Invalid`] if an environment variable has an invalid value; those copies fail with it too,
/// until [`staging::set_options`](crate::staging::set_options) is called. [`Error::Forked`] in a child
/// of `fork`, [`Error::Exiting`] once the process exits.
pub fn staging_options() -> Result<StagingOptions> {
    staging().map(|staging| staging.options)
}

/// Returns [`staging_options`], and what follows from how they were set.
pub(crate) fn staging() -> Result<Staging> {
    driver::ensure_not_gone()?;
    let mut known = lock(&STAGING);
    if let Some(staging) = *known {
        return Ok(staging);
    }
    let parsed = Staging::from_settings(setting)?;
    CHUNK_NOW.store(parsed.options.chunk, Ordering::Relaxed);
    Ok(*known.insert(parsed))
}

/// Sets the options of copies of large borrowed slices from now on. No driver call.
///
/// # Errors
/// [`Error::Invalid`] for an invalid number of threads or chunk size; nothing is then changed.
/// [`Error::Forked`] in a child of `fork`, [`Error::Exiting`] once the process exits.
pub fn set_staging_options(options: StagingOptions) -> Result<()> {
    driver::ensure_not_gone()?;
    let options = options.check()?;
    let mut known = lock(&STAGING);
    CHUNK_NOW.store(options.chunk, Ordering::Relaxed);
    *known = Some(Staging { options, threads_for_parts: options.threads });
    Ok(())
}

fn useful() -> usize {
    if copying::can_demote() { USEFUL_DEMOTERS } else { USEFUL }
}

impl Staging {
    fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let [threads, threads_for_parts] = match setting(THREADS) {
            Some(text) => [text.trim().parse().map_err(|_| bad_threads(&text))?; 2],
            None => default_threads(cores, useful()),
        };
        let chunk = match setting(CHUNK) {
            Some(text) => parse_bytes(&text).ok_or_else(|| bad_chunk(&text))?,
            None => USUAL_CHUNK,
        };
        Ok(Self { options: StagingOptions { threads, chunk }.check()?, threads_for_parts })
    }
}

/// Returns the number of threads that help with a copy, and with a copy in parts.
fn default_threads(cores: usize, useful: usize) -> [usize; 2] {
    let threads = cores.min(useful) - 1;
    [threads, (2 * threads).min(cores - 1)]
}

fn bad_threads(text: &str) -> Error {
    Error::malformed(THREADS, text, "a number of threads from 0 to 64")
}

fn bad_chunk(text: &str) -> Error {
    Error::malformed(CHUNK, text, "a power of two from 4KiB to 64MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(threads: &str, chunk: &str) -> Result<(usize, usize)> {
        let setting = |name: &str| Some(if name == THREADS { threads } else { chunk }.to_owned());
        let staging = Staging::from_settings(setting)?;
        assert_eq!(staging.threads_for_parts, staging.options.threads);
        Ok((staging.options.threads, staging.options.chunk))
    }

    #[test]
    fn settings_are_read_or_refused() {
        assert_eq!(parsed("0", "4096").ok(), Some((0, 4096)));
        assert_eq!(parsed("64", "512KiB").ok(), Some((64, 512 << 10)));
        assert_eq!(parsed(" 3 ", "2 MiB").ok(), Some((3, 2 << 20)));
        for threads in ["", "-1", "65", "many", "1.5"] {
            assert!(parsed(threads, "4MiB").is_err(), "{threads:?}");
        }
        for chunk in ["", "0", "2048", "5000", "3MiB", "128MiB", "KiB", "4GiB", "-4MiB"] {
            assert!(parsed("1", chunk).is_err(), "{chunk:?}");
        }
    }

    #[test]
    fn parts_of_several_devices_take_twice_the_threads_if_there_are_cores() {
        assert_eq!([USEFUL, USEFUL_DEMOTERS].map(|useful| default_threads(64, useful)[0]), [7, 13]);
        let parts = |cores| default_threads(cores, 14);
        assert_eq!(
            [parts(64), parts(20), parts(8), parts(1)],
            [[13, 26], [13, 19], [7, 7], [0, 0]]
        );
    }

    #[test]
    fn without_settings_the_machine_decides() {
        let options = Staging::from_settings(|_| None).map(|staging| staging.options);
        assert!(options.is_ok_and(|o| o.threads < useful() && o.chunk == USUAL_CHUNK));
    }
}
