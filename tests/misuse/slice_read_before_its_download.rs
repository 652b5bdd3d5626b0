//~ E0503
// Within a scope the slice is still to be filled.
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
