//~ E0599
// On another thread the handle means another stream, which the free would be ordered after.
use cuda_core::{PerThreadStream, Result, Stream};

#[cfg(misuse)]
type Home = PerThreadStream;
#[cfg(not(misuse))]
type Home = Stream;

fn allocate(stream: &Home) -> Result<()> {
    stream.alloc::<u8>(16).map(drop)
}

fn main() {}
