//~ E0505
use cuda_core::{DeviceBuffer, Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function, buffer: DeviceBuffer<f32>) -> Result<()> {
    let mut launch = stream.kernel(kernel).arg(&buffer);
    #[cfg(misuse)]
    drop(buffer);
    // SAFETY: none; this is about types.
    let launched = unsafe { launch.launch() };
    #[cfg(not(misuse))]
    drop(buffer);
    launched
}

fn main() {
    let _: fn(&Stream, &Function, DeviceBuffer<f32>) -> Result<()> = launch;
}
