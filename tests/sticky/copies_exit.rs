//! M13: the process ends while threads copy slices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cuda_core::{Device, Error, PinnedBuffer, PinnedPool, Result, pinned::PinnedBackend};
use support::{gpu_test, pattern};

use support::child;

const LEN: usize = 3 << 20;

/// The variable that tells the child how many bytes to copy at once.
const BYTES: &str = "CUDA_TESTS_COPY_BYTES";

/// Rounds that all threads together have done.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

/// Threads that are copying at this moment.
static COPYING: AtomicUsize = AtomicUsize::new(0);

/// Threads that copy.
const THREADS: usize = 6;

/// Length of slices that the library stages piece by piece.
const LARGE: usize = 6 << 20;

/// Length of slices that the library stages whole.
const SMALL: usize = 400 << 10;

/// Copies up and down until the process is on its way out.
fn copy(len: usize) -> Result<()> {
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(len)?;
    let bytes = pattern(13, len);
    let mut back = vec![0; len];
    loop {
        back.fill(0);
        COPYING.fetch_add(1, Ordering::Relaxed);
        stream.upload(&bytes, &mut buffer)?;
        stream.download(&buffer, &mut back)?;
        COPYING.fetch_sub(1, Ordering::Relaxed);
        if back != bytes {
            eprintln!("the bytes came back changed");
            std::process::abort();
        }
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Copies until a copy fails because the driver has shut down; that error is ignored.
fn until_the_end(len: usize) {
    let _ = copy(len);
}

gpu_test! {
    needs 1;
    fn m13_process_exit_while_threads_copy() -> Result<()> {
        if !child::is_this() {
            // With pinned memory of the driver's own, and with registered memory.
            for (memory, chunk, len) in [
                ("driver", "256KiB", LARGE),
                ("driver", "4MiB", LARGE),
                ("driver", "1MiB", SMALL),
                ("slab", "1MiB", LARGE),
            ] {
                let len = len.to_string();
                let settings = [
                    ("CUDA_CORE_COPY_THREADS", Some("3")),
                    ("CUDA_CORE_COPY_CHUNK", Some(chunk)),
                    ("CUDA_CORE_PINNED", Some(memory)),
                    (BYTES, Some(len.as_str())),
                ];
                child::run(concat!(module_path!(), "::needs_1"), &settings);
            }
            return Ok(());
        }
        // The harness overrides the variable, so the test chooses the driver's memory again.
        if std::env::var("CUDA_CORE_PINNED").is_ok_and(|memory| memory == "driver") {
            PinnedPool::set_backend(PinnedBackend::Driver);
        }
        Device::get(0)?.context()?;
        let len = std::env::var(BYTES).ok().and_then(|len| len.parse().ok());
        let len = len.expect("the parent says how many");
        for _ in 0..THREADS {
            thread::spawn(move || until_the_end(len));
        }
        while ROUNDS.load(Ordering::Relaxed) < THREADS || COPYING.load(Ordering::Relaxed) < THREADS {
            thread::yield_now();
        }
        child::done();
        std::process::exit(0);
    }
}

gpu_test! {
    needs 1;
    fn m13_process_exit_while_a_thread_reads_pinned_memory() -> Result<()> {
        /// Elements: enough that the reading thread meets any page that is unmapped.
        const ELEMENTS: usize = 1 << 20;
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let context = Device::get(0)?.context()?;
        let memory = PinnedBuffer::<u32>::write_combined(&context, ELEMENTS)?;
        // A permanent borrow, made by safe code: the memory must outlive every thread of the
        // process.
        let elements: &'static [u32] = Box::leak(Box::new(memory)).as_slice()?;
        thread::spawn(move || {
            loop {
                std::hint::black_box(elements.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x)));
                ROUNDS.fetch_add(1, Ordering::Relaxed);
            }
        });
        while ROUNDS.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        child::done();
        std::process::exit(0);
    }
}

gpu_test! {
    needs 1;
    fn n_copy_settings_of_the_environment() -> Result<()> {
        if !child::is_this() {
            let test = concat!(module_path!(), "::needs_1");
            child::run(test, &[("CUDA_CORE_COPY_THREADS", Some("many"))]);
            child::run(test, &[("CUDA_CORE_COPY_CHUNK", Some("3MiB"))]);
            return Ok(());
        }
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let mut bytes = pattern(14, LEN);
        // Small copies do not depend on the chunks' backing.
        stream.upload(&bytes[..1000], buffer.slice_mut(..1000)?)?;
        let answers = [
            cuda_core::staging::options().err(),
            stream.upload(&bytes, &mut buffer).err(),
            stream.download(&buffer, &mut bytes).err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(Error::Invalid(ref it)) if it.reason.contains("expected")), "{answer:?}");
        }
        // A call by the program overrides the environment.
        let options = cuda_core::staging::StagingOptions::new(1, 1 << 20);
        cuda_core::staging::set_options(options)?;
        stream.upload(&bytes, &mut buffer)?;
        let mut back = vec![0; LEN];
        stream.download(&buffer, &mut back)?;
        assert!(back == bytes);
        child::done();
        Ok(())
    }
}
