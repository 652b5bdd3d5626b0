//~ E0503
// The scope fills the slice when it ends, so the slice stays borrowed until then.
use cuda_core::{DeviceBuffer, Result, Stream};

fn read(stream: &Stream, buffer: &DeviceBuffer<u32>, host: &mut [u32]) -> Result<u32> {
    #[cfg(misuse)]
    return stream.scope(|scope| {
        scope.download(buffer, host)?;
        Ok(host[0])
    });
    #[cfg(not(misuse))]
    {
        stream.scope(|scope| scope.download(buffer, host))?;
        Ok(host[0])
    }
}

fn main() {}
