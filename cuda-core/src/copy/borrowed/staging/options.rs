//! Options of copies of large borrowed slices.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use super::copying;
use crate::error::{Error, Result};
use crate::process::{driver, workers};
use crate::util::byte_text::parse_bytes;
use crate::util::sync::lock;

/// Environment variables of the options.
const THREADS: &str = "CUDA_CORE_COPY_THREADS";
const CHUNK: &str = "CUDA_CORE_COPY_CHUNK";

/// Threads beyond which memory, not threads, limits copies. More of them write in bursts that slow
/// down the device's reads beside them.
const USEFUL: usize = 8;

/// The same if what they write [goes to the cache that all cores share](copying::can_demote).
const USEFUL_DEMOTERS: usize = 14;

/// The default size of a chunk.
const USUAL_CHUNK: usize = 8 << 20;

const SMALLEST_CHUNK: usize = 4 << 10;
const LARGEST_CHUNK: usize = 64 << 20;

/// How [`Stream::upload`](crate::Stream::upload),
/// [`Stream::download`](crate::Stream::download), [`Stream::scope`](crate::Stream::scope) and
/// the same of a [`DeviceGroup`](crate::DeviceGroup) copy large slices: which threads, through what
/// chunks of pinned memory.
///
/// They hold for the whole process. Unless [set](set_staging_options), they come from
/// `CUDA_CORE_COPY_THREADS` (a number) and `CUDA_CORE_COPY_CHUNK` (bytes, or `512KiB`, `4MiB`); by
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
    /// Threads that help the calling thread: with zero it copies alone; at most 64. The first copy
    /// that needs them starts them; they sleep while there is nothing to copy.
    /// Where no number was set, [`DeviceGroup::scatter`](crate::DeviceGroup::scatter) to several devices uses
    /// twice as many, if there are cores for them.
    pub threads: usize,
    /// Bytes of a chunk, a power of two from 4 KiB to 64 MiB. A copy has up to eight in use.
    pub chunk: usize,
}

impl StagingOptions {
    /// Options of this many threads, and chunks of this many bytes.
    pub const fn new(threads: usize, chunk: usize) -> Self {
        Self { threads, chunk }
    }
}

static OPTIONS: Mutex<Option<StagingOptions>> = Mutex::new(None);

/// The size of a chunk, readable without the lock.
static CHUNK_NOW: AtomicUsize = AtomicUsize::new(USUAL_CHUNK);

/// Whether the program, or its environment, has set a number of threads.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Whether `bytes` are more than a chunk, or more than `limit`.
pub(crate) fn is_more_than(bytes: usize, limit: usize) -> bool {
    bytes > limit || bytes > CHUNK_NOW.load(Ordering::Relaxed)
}

/// The options of copies of large borrowed slices. No driver call.
///
/// # Errors
/// [`Error::Invalid`] if an environment variable has an invalid value; those copies fail with it
/// too, until [`staging::set_options`](crate::staging::set_options) is called. [`Error::Forked`] in
/// a child of `fork`, [`Error::Exiting`] once the process exits.
pub fn staging_options() -> Result<StagingOptions> {
    driver::gone().map_or(Ok(()), Err)?;
    let mut options = lock(&OPTIONS);
    if let Some(options) = *options {
        return Ok(options);
    }
    let parsed = StagingOptions::from_settings(|name| {
        env::var_os(name).map(|text| text.to_string_lossy().into_owned())
    })?;
    CHUNK_NOW.store(parsed.chunk, Ordering::Relaxed);
    IS_SET.store(env::var_os(THREADS).is_some(), Ordering::Relaxed);
    Ok(*options.insert(parsed))
}

/// Sets how copies of large borrowed slices are made from now on. No driver call.
///
/// # Errors
/// [`Error::Invalid`] for an invalid number of threads or chunk size; nothing changes then.
/// [`Error::Forked`] in a child of `fork`, [`Error::Exiting`] once the process exits.
pub fn set_staging_options(options: StagingOptions) -> Result<()> {
    driver::gone().map_or(Ok(()), Err)?;
    let options = options.check()?;
    let mut known = lock(&OPTIONS);
    CHUNK_NOW.store(options.chunk, Ordering::Relaxed);
    IS_SET.store(true, Ordering::Relaxed);
    *known = Some(options);
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn useful() -> usize {
    if copying::can_demote() { USEFUL_DEMOTERS } else { USEFUL }
}

impl StagingOptions {
    fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let threads = match setting(THREADS) {
            Some(text) => text.trim().parse().map_err(|_| bad_threads(&text))?,
            None => cores().min(useful()) - 1,
        };
        let chunk = match setting(CHUNK) {
            Some(text) => parse_bytes(&text).ok_or_else(|| bad_chunk(&text))?,
            None => USUAL_CHUNK,
        };
        Self { threads, chunk }.check()
    }

    /// Threads that help to fill chunks, each of which one of several devices reads. Two devices read as fast
    /// as some thirty threads write; more threads, for more devices, write no faster.
    pub(crate) fn threads_for_parts(self) -> usize {
        static CORES: OnceLock<usize> = OnceLock::new();
        match IS_SET.load(Ordering::Relaxed) {
            true => self.threads,
            false => self.threads_on(*CORES.get_or_init(cores)),
        }
    }

    fn threads_on(self, cores: usize) -> usize {
        (2 * self.threads).min(cores - 1).max(self.threads)
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
        StagingOptions::from_settings(setting).map(|options| (options.threads, options.chunk))
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
        let on = |threads, cores| StagingOptions::new(threads, 4096).threads_on(cores);
        assert_eq!([on(13, 64), on(13, 20), on(13, 8), on(0, 64), on(0, 1)], [26, 19, 13, 0, 0]);
    }

    #[test]
    fn without_settings_the_machine_decides() {
        let options = StagingOptions::from_settings(|_| None);
        assert!(options.is_ok_and(|o| o.threads < useful() && o.chunk == USUAL_CHUNK));
    }
}
