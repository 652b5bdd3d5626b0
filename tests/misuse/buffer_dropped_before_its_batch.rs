//~ E0505
use cuda_core::{Batch, DeviceBuffer, Result, Stream};

fn outlive(stream: &Stream, a: DeviceBuffer<u32>, b: &mut DeviceBuffer<u32>) -> Result<()> {
    let mut batch = Batch::new();
    batch.copy(&a, b)?;
    #[cfg(misuse)]
    drop(a);
    stream.enqueue(batch)?;
    #[cfg(not(misuse))]
    drop(a);
    Ok(())
}

fn main() {}
