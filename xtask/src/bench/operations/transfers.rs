//! Transfers of pinned memory, including the wait.

use cuda_core::{DeviceBuffer, PinnedBuffer};

use super::SMALL;
use crate::bench::measure::{Measured, pair};
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::{self, Direction};

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = vec![Operation::new("upload + wait 4 KiB, pinned", small)];
    for mebibytes in [64, 1024] {
        for direction in Direction::BOTH {
            let what = direction.pick("upload", "download");
            let name = format!("{what} + wait {mebibytes} MiB, pinned");
            let run = move |fixture: &Fixture| large(fixture, mebibytes << 20, direction);
            operations.push(Operation::new(name, run));
        }
    }
    operations
}

fn ends(fixture: &Fixture, bytes: usize) -> anyhow::Result<(PinnedBuffer<u8>, DeviceBuffer<u8>)> {
    let host = PinnedBuffer::zeroed(&fixture.context, bytes)?;
    Ok((host, fixture.stream.alloc_zeroed(bytes)?))
}

fn small(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let (mut host, mut buffer) = ends(fixture, SMALL)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    pair(
        fixture.effort,
        20,
        || {
            stream.upload(&host, &mut buffer)?;
            stream.synchronize()
        },
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, Direction::Up, address, memory, SMALL) },
        || Ok(()),
    )
}

fn large(fixture: &Fixture, bytes: usize, direction: Direction) -> anyhow::Result<Measured> {
    let bytes = fixture.effort.bytes(bytes);
    let stream = &fixture.stream;
    let (mut host, mut buffer) = ends(fixture, bytes)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    fixture.rate(
        bytes,
        || match direction {
            Direction::Up => stream.upload(&host, &mut buffer),
            Direction::Down => stream.download(&buffer, &mut host),
        },
        // SAFETY: as in `small`.
        || unsafe { raw::transfer(stream, direction, address, memory, bytes) },
    )
}
