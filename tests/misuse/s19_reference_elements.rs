//~ E0277
// A host address is meaningless after it was copied to a device and back.
use cuda_core::{Result, Stream};

#[cfg(misuse)]
type Element = &'static u8;
#[cfg(not(misuse))]
type Element = u64;

fn allocate(stream: &Stream) -> Result<()> {
    stream.alloc::<Element>(16).map(drop)
}

fn main() {}
