//~ E0502
use cuda_core::{DeviceBuffer, Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function, buffer: &mut DeviceBuffer<f32>) -> Result<()> {
    let launch = stream.kernel(kernel);
    #[cfg(misuse)]
    let launch = launch.arg(&*buffer);
    let launch = launch.arg(&mut *buffer);
    #[cfg(not(misuse))]
    let launch = launch.arg(0u64);
    let mut launch = launch;
    // SAFETY: none; this is about types.
    unsafe { launch.launch() }
}

fn main() {
    let _: fn(&Stream, &Function, &mut DeviceBuffer<f32>) -> Result<()> = launch;
}
