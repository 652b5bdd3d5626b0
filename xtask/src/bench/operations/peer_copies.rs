//! Copies between devices.

use anyhow::ensure;
use cuda_core::{Context, Device};
use cuda_sys::cuMemcpyPeerAsync;

use super::TRANSFERS;
use crate::bench::raw::wait;
use crate::bench::{Fixture, Measured, Operation};
use crate::refuse;

pub(super) fn operations() -> Vec<Operation> {
    let copy = |name, access| Operation::new(name, move |fixture| peer(fixture, access)).gpus(2);
    vec![
        copy("peer copy + wait 1024 MiB, without access", false),
        copy("peer copy + wait 1024 MiB, with access", true),
    ]
}

/// Measures copies from one device to another, including the wait.
fn peer(fixture: &Fixture, access: bool) -> anyhow::Result<Measured> {
    let here = &fixture.context;
    let other = Device::all()?.find(|other| *other != here.device());
    let other = other.ok_or_else(|| refuse("there is no other device"))?;
    let there = other.context()?;
    if access {
        let why = "the devices cannot reach each other's memory";
        ensure!(here.device().can_access_peer(other)?, refuse(why));
        here.enable_peer_access(&there)?;
        there.enable_peer_access(here)?;
    }
    let measured = between(fixture, &there);
    if access {
        here.disable_peer_access(&there)?;
        there.disable_peer_access(here)?;
    }
    measured
}

fn between(fixture: &Fixture, there: &Context) -> anyhow::Result<Measured> {
    let bytes = fixture.effort.bytes(1 << 30);
    let stream = &fixture.stream;
    let far = there.create_stream()?;
    let source = stream.alloc_zeroed::<u8>(bytes)?;
    let mut target = far.alloc_zeroed::<u8>(bytes)?;
    far.synchronize()?;
    let (to, from) = (target.as_raw(), source.as_raw());
    let (near, other) = (fixture.context.as_raw(), there.as_raw());
    let ours = || stream.copy(&source, &mut target);
    let theirs = || {
        let raw = fixture.raw_stream();
        // SAFETY: both sides have `bytes` bytes that outlive the call and its wait.
        wait(unsafe { cuMemcpyPeerAsync(to, other, from, near, bytes, raw) }, &fixture.raw)
    };
    Ok(fixture.waited(TRANSFERS, 1, ours, theirs)?.moving(bytes))
}
