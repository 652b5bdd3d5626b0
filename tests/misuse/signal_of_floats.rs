//~ E0277
// Streams compare integers of 32 and 64 bits.
use cuda_core::{Context, Result, Signal};

#[cfg(misuse)]
fn signal(context: &Context) -> Result<Signal<f32>> {
    Signal::new(context, 0.0)
}

#[cfg(not(misuse))]
fn signal(context: &Context) -> Result<Signal<u32>> {
    Signal::new(context, 0)
}

fn main() {
    let _ = signal;
}
