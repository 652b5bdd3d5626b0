//! Runs the build script's generator for the checked-in bindings. `xtask-bindgen INCLUDE PACKAGE OUT
//! SYMBOL..` writes to OUT the bindings of the `cuda.h` in INCLUDE, with those symbols even if the header no
//! longer declares them. PACKAGE is the directory of `cuda-sys`.

use std::env;
use std::error::Error;
use std::path::Path;

#[path = "../../../cuda-sys/build/bindings.rs"]
mod bindings;
#[path = "../../../cuda-sys/build/generate.rs"]
mod generate;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [include, package, out, symbols @ ..] = &arguments[..] else {
        return Err("xtask-bindgen INCLUDE PACKAGE OUT SYMBOL..".into());
    };
    let kept: Vec<&str> =
        generate::FLOOR.lines().chain(symbols.iter().map(String::as_str)).collect();
    let bindings = generate::generate(Path::new(include), Path::new(package), &kept)?;
    Ok(bindings.write(Path::new(out), None)?)
}
