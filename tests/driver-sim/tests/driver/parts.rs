//! Files of the library that have unit tests, which run here: as tests of the library, they would compile all
//! of it a second time. Of the library, these files use only each other. None has unsafe code.

#![allow(dead_code, reason = "the tests use only some of it")]

#[path = "../../src/engine/clock.rs"]
mod clock;
#[path = "../../src/handle.rs"]
pub(crate) mod handle;
#[path = "../../src/engine/host.rs"]
mod host;
#[path = "../../src/nccl/number.rs"]
mod number;
#[path = "../../src/memory/pages.rs"]
mod pages;
// A `mod.rs`: a file that is included by its path has its modules beside itself.
#[path = "../../src/module/ptx/mod.rs"]
mod ptx;
#[path = "../../src/engine/schedule.rs"]
mod schedule;
#[path = "../../src/table.rs"]
pub(crate) mod table;
