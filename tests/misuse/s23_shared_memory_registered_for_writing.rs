//~ E0277
// Other owners may read what an `Arc` holds, so a device must not write to it.
use std::sync::Arc;

use cuda_core::{DeviceBuffer, Registered, Result, Stream};

#[cfg(misuse)]
type Host = Arc<[u32]>;
#[cfg(not(misuse))]
type Host = Vec<u32>;

fn fetch(stream: &Stream, from: &DeviceBuffer<u32>, to: &mut Registered<Host>) -> Result<()> {
    stream.download(from, to)
}

fn main() {
    let _ = size_of::<Arc<[u32]>>();
}
