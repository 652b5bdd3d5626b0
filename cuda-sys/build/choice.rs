//! Decides between generated and checked-in bindings.

use std::ffi::OsString;

use super::toolkit::{self, FLOOR, Found, INCLUDE_VARIABLE, Toolkit};

/// The value of `CUDA_SYS_BINDINGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Generate if possible.
    Auto,
    /// Generate, or fail.
    System,
    /// Use the checked-in bindings.
    Bundled,
}

/// The build script's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Generate from this toolkit's header.
    Generate(Toolkit),
    /// Use the checked-in bindings, with a warning if the search found a problem.
    Bundled {
        /// A single line.
        warning: Option<String>,
    },
}

impl Mode {
    /// Reads the variable's value; unset and empty mean [`Mode::Auto`].
    pub(crate) fn parse(value: Option<OsString>) -> Result<Self, String> {
        match value.as_ref().map(|value| value.to_string_lossy()).as_deref() {
            None | Some("" | "auto") => Ok(Mode::Auto),
            Some("system") => Ok(Mode::System),
            Some("bundled") => Ok(Mode::Bundled),
            Some(other) => Err(format!(
                "CUDA_SYS_BINDINGS is `{other}`; it takes `auto`, `system` or `bundled`"
            )),
        }
    }

    /// Whether the build searches for a header to read.
    pub(crate) fn searches(self, generator: bool) -> bool {
        generator && self != Mode::Bundled
    }

    /// Returns the plan for the result of a search. `generator`: whether bindgen was compiled in.
    pub(crate) fn plan(self, found: &Found, generator: bool) -> Result<Plan, String> {
        let silent = Ok(Plan::Bundled { warning: None });
        match self {
            Mode::Bundled => return silent,
            // The feature was turned off on purpose: no warning.
            Mode::Auto if !generator => return silent,
            Mode::System if !generator => {
                return Err(
                    "CUDA_SYS_BINDINGS=system needs the feature `buildtime-bindgen` of cuda-sys"
                        .to_owned(),
                );
            }
            Mode::Auto | Mode::System => {}
        }
        match &found.toolkit {
            Some(toolkit) if toolkit.version < FLOOR => self.fall_back(&format!(
                "{} is of CUDA {}; cuda-sys needs {} or newer",
                toolkit.include.join("cuda.h").display(),
                toolkit::release(toolkit.version),
                toolkit::release(FLOOR),
            )),
            Some(toolkit) => Ok(Plan::Generate(toolkit.clone())),
            None if self == Mode::System => Err(nothing_found(found)),
            None => match found.suspicious() {
                Some(tried) => self.fall_back(&format!("no cuda.h was found, but {tried}")),
                None => silent,
            },
        }
    }

    /// Returns the plan after a failure: an error if the header was required.
    pub(crate) fn fall_back(self, why: &str) -> Result<Plan, String> {
        match self {
            Mode::System => Err(format!("CUDA_SYS_BINDINGS=system, but {why}")),
            Mode::Auto | Mode::Bundled => Ok(Plan::Bundled {
                warning: Some(format!(
                    "{why}; using the bundled bindings (CUDA_SYS_BINDINGS=bundled says so without \
                     a warning)"
                )),
            }),
        }
    }
}

fn nothing_found(found: &Found) -> String {
    let mut text = "CUDA_SYS_BINDINGS=system, but no cuda.h was found. Tried:\n".to_owned();
    for tried in &found.tried {
        text.push_str(&format!("  {tried}\n"));
    }
    text.push_str(&format!(
        "Set {INCLUDE_VARIABLE} to the directory that holds NVIDIA's cuda.h, or CUDA_HOME to the \
         toolkit's root."
    ));
    text
}
