//! Copies of pageable memory.

use cuda_sys::cuMemcpyHtoDAsync_v2;

use super::{BATCH, SMALL};
use crate::bench::measure::Measured;
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::{self, Direction};

pub(super) fn operations() -> Vec<Operation> {
    let why = "the driver handles pageable memory in its own way";
    vec![
        Operation::new("upload_from 4 KiB, borrowed slice", upload_from).without_goal(why),
        Operation::new("download_to 4 KiB, borrowed slice", download_to).without_goal(why),
    ]
}

fn upload_from(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let source = vec![7u8; SMALL];
    let mut buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (buffer.as_raw(), source.as_ptr());
    fixture.pair(
        BATCH,
        || stream.upload_from(&source, &mut buffer),
        // SAFETY: both sides have SMALL bytes; the driver copies pageable memory before it returns.
        || unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), SMALL, fixture.raw_stream()) },
    )
}

fn download_to(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let mut target = vec![0u8; SMALL];
    let buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (target.as_mut_ptr(), buffer.as_raw());
    fixture.pair(
        20,
        || stream.download_to(&buffer, &mut target),
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, Direction::Down, from, to, SMALL) },
    )
}
