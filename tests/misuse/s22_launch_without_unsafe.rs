//~ E0133
// The library does not check what a kernel does with its arguments.
use cuda_core::{Function, Result, Stream};

fn launch(stream: &Stream, kernel: &Function) -> Result<()> {
    let mut launch = stream.kernel(kernel);
    #[cfg(misuse)]
    let result = launch.launch();
    #[cfg(not(misuse))]
    // SAFETY: none; this is about types.
    let result = unsafe { launch.launch() };
    result
}

fn main() {
    let _: fn(&Stream, &Function) -> Result<()> = launch;
}
