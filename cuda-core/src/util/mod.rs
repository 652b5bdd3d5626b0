//! Containers, locks, macros and settings that know nothing of CUDA.

mod by_parts;
mod byte_text;
pub(crate) mod flags;
pub(crate) mod from;
mod inline_vec;
pub(crate) mod library;
mod on_drop;
mod pocket;
pub(crate) mod raw_enum;
pub(crate) mod sent_bytes;
pub(crate) mod setters;
pub(crate) mod size_class;
mod sync;
mod tree;
mod turns;

pub(crate) use by_parts::{compare_by, debug_by};
pub(crate) use byte_text::parse_bytes;
pub(crate) use flags::flags;
pub(crate) use from::from;
pub(crate) use inline_vec::{InlineVec, OwningInlineVec};
pub(crate) use on_drop::OnDrop;
pub(crate) use pocket::Pocket;
pub(crate) use raw_enum::raw_enum;
pub(crate) use sent_bytes::sent_bytes;
pub(crate) use setters::setters;
pub(crate) use sync::{Locks, get_or_try_init, lock, lock_all, thread_number, wait_while};
pub(crate) use tree::Tree;
pub(crate) use turns::Turns;

/// Returns the value of an environment variable, to be parsed; an empty one counts as unset. Invalid Unicode
/// is replaced, so that the parser refuses the value instead of ignoring it.
pub(crate) fn setting(name: &str) -> Option<String> {
    let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
    Some(text.to_string_lossy().into_owned())
}
