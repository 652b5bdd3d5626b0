//~ E0502
// One launch cannot have a buffer both shared and exclusively.
use cuda_core::{DeviceBuffer, Stream};

cuda_core::kernel! {
    fn shift(from: &[f32], to: &mut [f32]);
}

#[cfg(misuse)]
fn launch(stream: &Stream, shift: &shift, x: &mut DeviceBuffer<f32>, _: &DeviceBuffer<f32>) {
    drop(shift.on(stream, &*x, &mut *x));
}
#[cfg(not(misuse))]
fn launch(stream: &Stream, shift: &shift, x: &mut DeviceBuffer<f32>, y: &DeviceBuffer<f32>) {
    drop(shift.on(stream, y, &mut *x));
}

fn main() {
    let _: fn(&Stream, &shift, &mut DeviceBuffer<f32>, &DeviceBuffer<f32>) = launch;
}
