//! Options that NVRTC does not refuse, and should.

use std::ffi::OsStr;

use crate::error::{Error, Result};

/// Refuses the options of precompiled headers, and values for which NVRTC throws a C++ exception instead of
/// returning a code.
pub(super) fn admit(option: &OsStr) -> Result<()> {
    // NVRTC skips blanks before an option, and knows no abbreviations.
    let option = option.to_string_lossy();
    let Some(option) = option.trim_start().strip_prefix('-') else {
        return Ok(());
    };
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value.trim())),
        None => (option, None),
    };
    let refused = |why: &str| {
        Err(Error::invalid("nvrtcCompileProgram", format!("option `-{option}`: {why}")))
    };
    if name.contains("pch") {
        return refused(
            "NVRTC takes the file of a precompiled header for its own memory, without a check: \
             `Program::option_unchecked`",
        );
    }
    match value {
        Some("") if name.starts_with('D') => Ok(()),
        Some("") => refused("there is no value"),
        Some(value) if is_large(value) => refused("the number does not fit in 32 bits"),
        _ => Ok(()),
    }
}

/// Whether this is a number that a C++ `int` cannot hold.
fn is_large(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    digits.bytes().all(|digit| digit.is_ascii_digit()) && value.parse::<i32>().is_err()
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
            "-I",
            "pch",
            "--include-path=pch",
            "--maxrregcount=0000000000032",
            "--split-compile=-1",
            "--ptxas-options=-v",
            "",
        ] {
            assert!(admit(OsStr::new(option)).is_ok(), "{option}");
        }
    }
}
