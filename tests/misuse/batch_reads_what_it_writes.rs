//~ E0502
use cuda_core::{Batch, DeviceBuffer, Result, Stream};

fn depend(stream: &Stream, a: &mut DeviceBuffer<u32>, b: &mut DeviceBuffer<u32>) -> Result<()> {
    let source = stream.alloc_zeroed::<u32>(8)?;
    let mut batch = Batch::new();
    batch.copy(&source, &mut *a)?;
    #[cfg(misuse)]
    batch.copy(&*a, &mut *b)?;
    #[cfg(not(misuse))]
    batch.copy(&source, &mut *b)?;
    stream.enqueue(batch)
}

fn main() {}
