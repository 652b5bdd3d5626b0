//~ E0502
use cuda_core::{DeviceBuffer, Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function, buffer: &mut DeviceBuffer<f32>) -> Result<()> {
    let mut launch = stream.kernel(kernel);
    #[cfg(misuse)]
    launch = launch.arg(&*buffer);
    launch = launch.arg(&mut *buffer);
    #[cfg(not(misuse))]
    launch = launch.arg(0u64);
    // SAFETY: none; this is about types.
    unsafe { launch.launch() }
}

fn main() {
    let _: fn(&Stream, &Function, &mut DeviceBuffer<f32>) -> Result<()> = launch;
}
