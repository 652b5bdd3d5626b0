//~ E0277
// A value is given, not a reference to it.
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
