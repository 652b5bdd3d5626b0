//! A fault at every driver call.

pub(crate) mod stack;
