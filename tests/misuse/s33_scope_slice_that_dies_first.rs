//~ E0597
// The slices of a scope are written when it ends.
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
