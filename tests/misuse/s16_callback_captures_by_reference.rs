//~ E0373
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{Result, Stream};

fn count(stream: &Stream) -> Result<()> {
    let calls = Arc::new(AtomicU32::new(0));
    #[cfg(misuse)]
    return stream.launch_host_func(|| {
        calls.fetch_add(1, Ordering::Relaxed);
    });
    #[cfg(not(misuse))]
    stream.launch_host_func(move || {
        calls.fetch_add(1, Ordering::Relaxed);
    })
}

fn main() {}
