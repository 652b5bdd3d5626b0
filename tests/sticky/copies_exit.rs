//! M13: the process ends while threads copy large slices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cuda_core::{Device, Error, Result};
use support::{gpu_test, pattern};

use crate::child;

const LEN: usize = 3 << 20;

/// Rounds that the threads have done, all together.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

/// Copies up and down until the process is on its way out.
fn copy() -> Result<()> {
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(LEN)?;
    let bytes = pattern(13, LEN);
    let mut back = vec![0; LEN];
    loop {
        stream.upload_from(&bytes, &mut buffer)?;
        back.fill(0);
        stream.download_to(&buffer, &mut back)?;
        if back != bytes {
            eprintln!("the bytes came back changed");
            std::process::abort();
        }
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Copies for as long as there is a driver; what it says when it goes is its own affair.
fn until_the_end() {
    let _ = copy();
}

gpu_test! {
    needs 1;
    fn m13_process_exit_while_threads_copy() -> Result<()> {
        if !child::is_this() {
            for round in 0..4 {
                let chunk = if round % 2 == 0 { "64KiB" } else { "1MiB" };
                let settings = [
                    ("CUDA_CORE_COPY_THREADS", Some("3")),
                    ("CUDA_CORE_COPY_CHUNK", Some(chunk)),
                ];
                child::run(concat!(module_path!(), "::needs_1"), &settings);
            }
            return Ok(());
        }
        Device::get(0)?.context()?;
        for _ in 0..2 {
            thread::spawn(until_the_end);
        }
        while ROUNDS.load(Ordering::Relaxed) < 5 {
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
        // Small copies do not care.
        stream.upload_from(&bytes[..1000], buffer.slice_mut(..1000)?)?;
        let answers = [
            cuda_core::staging_options().err(),
            stream.upload_from(&bytes, &mut buffer).err(),
            stream.download_to(&buffer, &mut bytes).err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(Error::Malformed { .. })), "{answer:?}");
        }
        // A program that knows better.
        let options = cuda_core::StagingOptions { threads: 1, chunk: 1 << 20 };
        cuda_core::set_staging_options(options)?;
        stream.upload_from(&bytes, &mut buffer)?;
        let mut back = vec![0; LEN];
        stream.download_to(&buffer, &mut back)?;
        assert!(back == bytes);
        child::done();
        Ok(())
    }
}
