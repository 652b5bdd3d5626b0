//~ E0502
use cuda_core::{GraphExec, PinnedBuffer, Result, Stream};

fn read(stream: &Stream, exec: &mut GraphExec, host: &mut PinnedBuffer<u32>) -> Result<u32> {
    let slice = host.as_slice()?;
    #[cfg(not(misuse))]
    let first = slice[0];
    exec.lend_mut(&mut *host).launch(stream)?;
    #[cfg(misuse)]
    let first = slice[0];
    Ok(first)
}

fn main() {}
