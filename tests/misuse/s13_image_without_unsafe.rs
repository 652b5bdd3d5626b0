//~ E0133
// The driver trusts the headers of a binary image without checking them.
use cuda_core::{Context, Module, Result};

fn load(context: &Context, image: &[u8]) -> Result<Module> {
    #[cfg(misuse)]
    let module = Module::from_image(context, image);
    #[cfg(not(misuse))]
    // SAFETY: none; this is about types.
    let module = unsafe { Module::from_image(context, image) };
    module
}

fn main() {
    let _: fn(&Context, &[u8]) -> Result<Module> = load;
}
