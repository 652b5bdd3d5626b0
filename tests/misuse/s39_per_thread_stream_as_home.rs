//~ E0599
// Freed on another thread, the memory would be ordered after the wrong stream.
use cuda_core::{PerThreadStream, Result, Stream};

#[cfg(misuse)]
type Home = PerThreadStream;
#[cfg(not(misuse))]
type Home = Stream;

fn allocate(stream: &Home) -> Result<()> {
    stream.alloc::<u8>(16).map(drop)
}

fn main() {}
