//~ E0277
// A kernel cannot follow the address of a host slice.
use cuda_core::{DeviceBuffer, Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function, device: &DeviceBuffer<f32>) -> Result<()> {
    let host = [1.0f32; 16];
    let _ = (&host, device);
    #[cfg(misuse)]
    let argument = &host[..];
    #[cfg(not(misuse))]
    let argument = device;
    // SAFETY: none; this is about types.
    unsafe { stream.kernel(kernel).arg(argument).launch() }
}

fn main() {
    let _: fn(&Stream, &Function, &DeviceBuffer<f32>) -> Result<()> = launch;
}
