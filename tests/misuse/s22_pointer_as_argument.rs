//~ E0277
// Raw pointers point to host memory; device addresses are passed as numbers.
use cuda_core::{Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function, host: *mut f32) -> Result<()> {
    #[cfg(misuse)]
    let argument = host;
    #[cfg(not(misuse))]
    let argument = host.addr() as u64;
    // SAFETY: none; this is about types.
    unsafe { stream.kernel(kernel).arg(argument).launch() }
}

fn main() {
    let _: fn(&Stream, &Function, *mut f32) -> Result<()> = launch;
}
