//! Process-wide state: whether the driver may be called, and work that outlives the call that began it.

pub(crate) mod capture_mode;
mod contained;
pub(crate) mod deferred;
pub(crate) mod driver;
pub(crate) mod drop_hook;
pub(crate) mod effect;
pub(crate) mod foreign_code;
mod handle;
pub(crate) mod held;
pub mod nvtx;
pub(crate) mod owned;
mod pinned_pass;
pub(crate) mod workers;

pub(crate) use capture_mode::RelaxedCaptureMode;
pub(crate) use contained::{Contained, ForeignOwner, caught, contain, unless_panic};
pub(crate) use deferred::HandOver;
pub(crate) use effect::{Failed, attempt, released};
pub(crate) use foreign_code::DeferForeignCode;
pub(crate) use handle::Handle;
pub(crate) use owned::{Owned, Release};
pub(crate) use pinned_pass::Pass;
pub(crate) use workers::{Help, Work, with_help};
