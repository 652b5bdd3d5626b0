//~ E0277
// The one handle means another stream on every thread.
use cuda_core::{PerThreadStream, Stream};

#[cfg(misuse)]
type Sent = PerThreadStream;
#[cfg(not(misuse))]
type Sent = Stream;

fn send(stream: Sent) {
    std::thread::spawn(move || stream.synchronize());
}

fn main() {}
