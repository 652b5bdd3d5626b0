//! Who made a driver call: the library under test, or the body of the test.

use cuda_sim::{Leak, Origin};

/// Functions of the library that leave something else current because they are asked to.
const DELIBERATE: [&str; 4] = ["create_current", "set_current", "push", "pop"];

/// Whether the test made the object with a raw call of its own.
pub(super) fn is_body(leak: &Leak, path: &str) -> bool {
    leak.origin
        .as_ref()
        .is_some_and(|origin| matches!(caller(&origin.functions(), path), Some(Caller::Body)))
}

/// Whether the test changed what is current, rather than the library around a call of its own.
pub(super) fn is_switch_by_body(switch: &Origin, path: &str) -> bool {
    match caller(&switch.functions(), path) {
        Some(Caller::Body) => true,
        // `Context::push`, or `<impl cuda_core::context::Context>::create_current`.
        Some(Caller::Library(function)) => function
            .rsplit_once("::")
            .is_some_and(|(of, name)| of.contains("Context") && DELIBERATE.contains(&name)),
        None => false,
    }
}

enum Caller {
    /// With the outermost of its functions, which the body called.
    Library(String),
    Body,
}

/// The innermost function that is the library's or the body's decides: the simulator, `cuda-sys`, the
/// standard library and C come between.
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
