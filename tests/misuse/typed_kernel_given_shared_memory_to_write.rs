//~ E0277
// What a kernel writes is borrowed exclusively.
use cuda_core::{DeviceBuffer, Stream};

cuda_core::kernel! {
    fn clear(x: &mut [f32]);
}

#[cfg(misuse)]
fn launch(stream: &Stream, clear: &clear, x: &mut DeviceBuffer<f32>) {
    drop(clear.on(stream, &*x));
}
#[cfg(not(misuse))]
fn launch(stream: &Stream, clear: &clear, x: &mut DeviceBuffer<f32>) {
    drop(clear.on(stream, x));
}

fn main() {
    let _: fn(&Stream, &clear, &mut DeviceBuffer<f32>) = launch;
}
