//~ E0502
use cuda_core::{GraphExec, PinnedBuffer, Result, Stream};

fn write(stream: &Stream, exec: &mut GraphExec, host: &mut PinnedBuffer<u32>) -> Result<()> {
    let slice = host.as_mut_slice()?;
    #[cfg(not(misuse))]
    slice.fill(1);
    exec.lend(&*host).launch(stream)?;
    #[cfg(misuse)]
    slice.fill(1);
    Ok(())
}

fn main() {}
