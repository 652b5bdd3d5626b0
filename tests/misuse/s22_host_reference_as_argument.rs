//~ E0277
// Kernels take values as arguments, not references to host values.
use cuda_core::{Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function) -> Result<()> {
    let n = 16u32;
    #[cfg(misuse)]
    let argument = &n;
    #[cfg(not(misuse))]
    let argument = n;
    // SAFETY: none; this is about types.
    unsafe { stream.kernel(kernel).arg(argument).launch() }
}

fn main() {
    let _: fn(&Stream, &Function) -> Result<()> = launch;
}
