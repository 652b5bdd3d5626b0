//! Transfers of pinned memory, including the wait.

use cuda_core::PinnedBuffer;

use super::SMALL;
use crate::bench::measure::{Effort, Measured, pair};
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::{self, Direction};

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = vec![Operation::new("upload + wait 4 KiB, pinned", |fixture| {
        transfer(fixture, fixture.effort, SMALL, 20, Direction::Up)
    })];
    for mebibytes in [64, 1024] {
        for direction in Direction::BOTH {
            let what = match direction {
                Direction::Up => "upload",
                Direction::Down => "download",
            };
            let name = format!("{what} + wait {mebibytes} MiB, pinned");
            operations.push(Operation::new(name, move |fixture| {
                let bytes = fixture.effort.bytes(mebibytes << 20);
                let effort = fixture.effort.at_most(15);
                Ok(transfer(fixture, effort, bytes, 1, direction)?.moving(bytes))
            }));
        }
    }
    operations
}

fn transfer(
    fixture: &Fixture,
    effort: Effort,
    bytes: usize,
    batch: usize,
    direction: Direction,
) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let mut host = PinnedBuffer::<u8>::zeroed(&fixture.context, bytes)?;
    let mut buffer = stream.alloc_zeroed::<u8>(bytes)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    pair(
        effort,
        batch,
        || {
            match direction {
                Direction::Up => stream.upload(&host, &mut buffer)?,
                Direction::Down => stream.download(&buffer, &mut host)?,
            }
            stream.synchronize()
        },
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, direction, address, memory, bytes) },
        || Ok(()),
    )
}
