//! Runs the build script's generator for the checked-in bindings. `xtask-bindgen INCLUDE PACKAGE OUT
//! SYMBOL..` writes to OUT the bindings of the `cuda.h` in INCLUDE, with those symbols even if the header no
//! longer declares them. PACKAGE is the directory of `cuda-sys`. Without arguments it only loads libclang; exit
//! code 2: there is none.

use std::env;
use std::error::Error;
use std::panic;
use std::path::Path;
use std::process::ExitCode;

#[path = "../../../cuda-sys/build/bindings.rs"]
mod bindings;
#[path = "../../../cuda-sys/build/generate.rs"]
mod generate;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.is_empty() {
        // bindgen panics if it cannot load libclang.
        let loaded = panic::catch_unwind(bindgen::clang_version);
        return Ok(ExitCode::from(if loaded.is_ok() { 0 } else { 2 }));
    }
    let [include, package, out, symbols @ ..] = &arguments[..] else {
        return Err("xtask-bindgen INCLUDE PACKAGE OUT SYMBOL..".into());
    };
    let kept: Vec<&str> =
        generate::FLOOR.lines().chain(symbols.iter().map(String::as_str)).collect();
    let bindings = generate::generate(Path::new(include), Path::new(package), &kept)?;
    bindings.write(Path::new(out), None)?;
    Ok(ExitCode::SUCCESS)
}
