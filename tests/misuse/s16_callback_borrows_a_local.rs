//~ E0597
// The driver runs the callback later, on its own thread.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{Result, Stream};

fn count(stream: &Stream) -> Result<()> {
    let calls = Arc::new(AtomicU32::new(0));
    #[cfg(misuse)]
    let counter: &'static AtomicU32 = &calls;
    #[cfg(not(misuse))]
    let counter = Arc::clone(&calls);
    stream.launch_host_func(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    })
}

fn main() {}
