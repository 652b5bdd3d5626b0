//~ E0277
// On another thread, the handle of a per-thread default stream means another stream.
use cuda_core::{DeviceBuffer, PerThreadStream, Result};

fn download(stream: &PerThreadStream, buffer: &DeviceBuffer<u8>, to: &mut [u8]) -> Result<()> {
    stream.scope(|scope| {
        #[cfg(misuse)]
        return std::thread::scope(|threads| {
            let download = threads.spawn(|| scope.download(buffer, to));
            download.join().expect("no panic")
        });
        #[cfg(not(misuse))]
        return scope.download(buffer, to);
    })
}

fn main() {
    let _: fn(&PerThreadStream, &DeviceBuffer<u8>, &mut [u8]) -> Result<()> = download;
}
