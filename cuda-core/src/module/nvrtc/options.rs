//! Options that NVRTC does not refuse, and should.

use std::ffi::OsStr;

use crate::error::{Error, Result};

/// Refuses the options of precompiled headers, and those for which NVRTC ends the process or throws a C++
/// exception instead of returning a code.
pub(super) fn admit(option: &OsStr) -> Result<()> {
    let text = option.to_string_lossy();
    // NVRTC skips blanks before an option, and knows no abbreviations.
    let option = text.trim();
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value.trim())),
        None => (option, None),
    };
    let name = name.strip_prefix('-').map(|name| name.strip_prefix('-').unwrap_or(name));
    let why = match (name, value) {
        (Some("pch" | "create-pch" | "use-pch" | "pch-dir"), _) => {
            "NVRTC takes the file of a precompiled header for its own memory, without a check: \
             `Program::option_unchecked`"
        }
        (Some("fdevice-time-trace"), _) => {
            "NVRTC ends the process if it cannot write the file: `Program::option_unchecked`"
        }
        // The value may be an element of its own.
        (_, None) if is_no_int(option) => NUMBER,
        (Some(name), Some(value)) if !takes_text(name) && is_no_int(value) => NUMBER,
        (Some(name), Some("")) if !takes_text(name) => "there is no value",
        _ => return Ok(()),
    };
    Err(Error::invalid("nvrtcCompileProgram", format!("option `{option}`: {why}")))
}

const NUMBER: &str = "this is no number of 32 bits";

/// Whether the option, without its dashes, takes a macro or a path, which may be empty or any number.
fn takes_text(name: &str) -> bool {
    let long = ["define-macro", "undefine-macro", "include-path", "pre-include", "include"];
    long.contains(&name) || name.starts_with(['D', 'U', 'I'])
}

/// Whether this is a number for NVRTC, which takes a sign alone for one, and no C++ `int` can hold it.
fn is_no_int(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = !value.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number && value.parse::<i32>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_nvrtc_does_not_survive_are_refused() {
        for option in [
            "--pch",
            "-create-pch=/tmp/a",
            " \t--use-pch=/tmp/a",
            "--pch-dir=/tmp",
            "--ptxas-options=",
            "-Xptxas= ",
            "--split-compile=2147483648",
            "--jump-table-density=-99999999999999999999999",
            " 2147483648",
            "-2147483649",
            "-jtd=-",
            "-",
            "--fdevice-time-trace=/tmp/a",
        ] {
            assert!(admit(OsStr::new(option)).is_err(), "{option}");
        }
    }

    #[test]
    fn others_are_not() {
        for option in [
            "--use_fast_math",
            "--std=c++17",
            "-DN=",
            "-DN=4294967296",
            "-Dpch=1",
            "--define-macro=N=4294967296",
            "-I",
            "-I/pch",
            "pch",
            "--include-path=4294967296",
            "--maxrregcount=0000000000032",
            "--split-compile=-1",
            "--ptxas-options=-v",
            "--pch-verbose=true",
            "",
        ] {
            assert!(admit(OsStr::new(option)).is_ok(), "{option}");
        }
    }
}
