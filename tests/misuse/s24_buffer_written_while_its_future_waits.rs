//~ E0502
use cuda_core::{DeviceBuffer, Result, Stream};

async fn race(stream: &Stream, buffer: &mut DeviceBuffer<u32>) -> Result<()> {
    let ready = buffer.ready();
    #[cfg(misuse)]
    stream.fill(&mut *buffer, 1)?;
    ready.await?;
    #[cfg(not(misuse))]
    stream.fill(&mut *buffer, 1)?;
    Ok(())
}

fn main() {}
