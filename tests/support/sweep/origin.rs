//! Finds which code made a driver call: the library under test, or the body of the test.

use cuda_sim::{Leak, Origin};

/// Library functions that change the current context on purpose.
const DELIBERATE: [&str; 4] = ["new_current", "set_current", "push", "pop"];

/// Returns whether the body of the test made the object with a raw call.
pub(super) fn is_body(leak: &Leak, path: &str) -> bool {
    leak.origin
        .as_ref()
        .is_some_and(|origin| matches!(caller(&origin.functions(), path), Some(Caller::Body)))
}

/// Returns whether the body of the test, rather than the library, changed the current context.
pub(super) fn is_switch_by_body(switch: &Origin, path: &str) -> bool {
    match caller(&switch.functions(), path) {
        Some(Caller::Body) => true,
        // `Context::push`, or `<impl cuda_core::context::Context>::new_current`.
        Some(Caller::Library(function)) => function.rsplit_once("::").is_some_and(|(of, name)| {
            (of.contains("Context") || of.contains("Device")) && DELIBERATE.contains(&name)
        }),
        None => false,
    }
}

enum Caller {
    /// The library, with the outermost of its functions, which the body called.
    Library(String),
    Body,
}

/// Searches from the innermost function outwards for one of the library or of the body. It passes over
/// functions of the simulator, `cuda-sys`, the standard library and C.
fn caller(functions: &[String], path: &str) -> Option<Caller> {
    let suite = path.split("::").next().unwrap_or(path);
    let mut library = None;
    for function in functions {
        let name = function.trim_start_matches(['<', '&', '*']);
        let krate = name.split("::").next().unwrap_or(name);
        if krate == "cuda_core" {
            library = Some(Caller::Library(function.clone()));
        } else if krate == suite || krate == "support" {
            return library.or(Some(Caller::Body));
        }
    }
    library
}
