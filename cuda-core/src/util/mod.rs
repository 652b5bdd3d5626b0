//! Containers, locks, macros and settings that know nothing of CUDA.

pub(crate) mod by_parts;
pub(crate) mod byte_text;
pub(crate) mod flags;
pub(crate) mod from;
pub(crate) mod inline_vec;
pub(crate) mod library;
pub(crate) mod on_drop;
pub(crate) mod pocket;
pub(crate) mod process_state;
pub(crate) mod raw_enum;
pub(crate) mod sent_bytes;
pub(crate) mod size_class;
pub(crate) mod sync;
pub(crate) mod tree;
pub(crate) mod turns;

/// The value of an environment variable, to be parsed: what is no Unicode in it is replaced, so that it is
/// refused rather than ignored.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}
