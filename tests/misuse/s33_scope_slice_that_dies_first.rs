//~ E0597
// A scope writes to its slices when it ends, so they must outlive it.
use cuda_core::{DeviceBuffer, Result, Stream};

fn download(stream: &Stream, buffer: &DeviceBuffer<u8>) -> Result<()> {
    #[cfg(not(misuse))]
    let mut back = [0; 4];
    stream.scope(|scope| {
        #[cfg(misuse)]
        let mut back = [0; 4];
        scope.download(buffer, &mut back)?;
        Ok(())
    })
}

fn main() {
    let _: fn(&Stream, &DeviceBuffer<u8>) -> Result<()> = download;
}
