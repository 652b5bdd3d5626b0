//~ E0277
// The current stream belongs to a thread, so its guard must end on the one it began on.
use cuda_core::{Stream, StreamGuard};

#[cfg(misuse)]
fn cross(guard: StreamGuard) {
    std::thread::spawn(move || drop(guard));
}

#[cfg(not(misuse))]
fn cross(stream: Stream) {
    std::thread::spawn(move || stream.enter().map(StreamGuard::restore));
}

fn main() {}
