//~ E0277
// An address of the host's means nothing after a trip through the device.
use cuda_core::{Result, Stream};

#[cfg(misuse)]
type Element = &'static u8;
#[cfg(not(misuse))]
type Element = u64;

fn allocate(stream: &Stream) -> Result<()> {
    stream.alloc::<Element>(16).map(drop)
}

fn main() {}
