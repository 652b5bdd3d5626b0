//! The modes: each has many objects of one kind, and measures one operation.

use std::mem;
use std::sync::atomic::Ordering;

use anyhow::Result;
use cuda_core::{Device, DeviceBuffer, Error, InFlight, PinnedBuffer, Stream};

use super::driver::PENDING;
use crate::bench::measure::{each_of, once};

/// A row of the table: the mode's name, a function that returns nanoseconds per operation for a number of
/// objects, and a description.
pub(super) type Mode = (&'static str, fn(usize) -> Result<f64>, &'static str);

pub(super) const MODES: [Mode; 18] = [
    ("readers", readers, "a copy from what N streams read"),
    ("writer", writer, "a write after N readers, for each"),
    ("parts", parts, "a fill of one of N parts, each another stream's"),
    ("churn", |n| churn(n, true), "a stream that reads a table and goes, N pending"),
    ("churn-done", |n| churn(n, false), "a stream that reads a table and goes, all done"),
    ("flights", flights, "an owned upload beside N"),
    ("landings", landings, "the end of one of N owned uploads"),
    ("waits", waits, "a wait for one of N streams"),
    ("mesh", mesh, "a wait of one of N streams for another"),
    ("pending", pending, "the return of N blocks from another stream, for each"),
    ("in-turn", in_turn, "alloc, use elsewhere, drop: N pending"),
    ("fragments", fragments, "the first block of a stream beside N fragments"),
    ("first", first, "the first block of each of N streams"),
    ("large", large, "a large block beside N streams"),
    ("hit", hit, "a hit of the cache beside N buffers"),
    ("fills", fills, "a fill of one of N buffers"),
    ("streams", streams, "create and drop a stream beside N"),
    ("pinned", pinned, "a pinned buffer beside N"),
];

/// The smallest number of operations over which the mean is taken.
const OPERATIONS: usize = 20_000;

/// The number of repeats of an operation that costs the same each time.
const REPEATS: usize = 1000;

/// Returns the nanoseconds of one of the `operations` operations that `run` makes.
fn cost(operations: usize, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    Ok(once(run)? / operations as f64)
}

/// Returns the nanoseconds of one of the `n` operations of a round, over enough rounds.
fn in_rounds(n: usize, round: impl FnMut() -> Result<()>) -> Result<f64> {
    Ok(each_of(OPERATIONS.div_ceil(n), round)? / n as f64)
}

fn device() -> Result<Device> {
    Ok(Device::get(0)?)
}

fn streams_of(n: usize) -> Result<Vec<Stream>> {
    let device = device()?;
    (0..n).map(|_| Ok(device.create_stream()?)).collect()
}

fn block_of_each(streams: &[Stream], bytes: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    streams.iter().map(|stream| Ok(stream.alloc(bytes)?)).collect()
}

fn blocks(stream: &Stream, n: usize, bytes: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    (0..n).map(|_| Ok(stream.alloc(bytes)?)).collect()
}

fn fill_all(stream: &Stream, buffers: &mut [DeviceBuffer<u8>]) -> Result<()> {
    buffers.iter_mut().try_for_each(|buffer| Ok(stream.fill(buffer, 1)?))
}

/// Leaks the objects, so that their drop is not measured: the process ends.
fn leave<T>(cost: f64, left: T) -> Result<f64> {
    mem::forget(left);
    Ok(cost)
}

/// Returns a buffer to read, with its stream, on which nothing is pending.
fn table() -> Result<(Stream, DeviceBuffer<u8>)> {
    let home = device()?.create_stream()?;
    let table = home.alloc(64)?;
    home.synchronize()?;
    Ok((home, table))
}

/// Copies the buffer once on each stream.
fn read(table: &DeviceBuffer<u8>, streams: &[Stream], outs: &mut [DeviceBuffer<u8>]) -> Result<()> {
    streams.iter().zip(outs).try_for_each(|(stream, out)| Ok(stream.copy(table, out)?))
}

fn readers(n: usize) -> Result<f64> {
    let (home, table) = table()?;
    let streams = streams_of(n)?;
    let mut outs = block_of_each(&streams, 64)?;
    let mut round = || read(&table, &streams, &mut outs);
    // The first round creates the entries.
    round()?;
    leave(in_rounds(n, round)?, (home, table, streams, outs))
}

fn writer(n: usize) -> Result<f64> {
    let (home, mut table) = table()?;
    let streams = streams_of(n)?;
    let mut outs = block_of_each(&streams, 64)?;
    read(&table, &streams, &mut outs)?;
    leave(cost(n, || Ok(home.fill(&mut table, 1)?))?, (home, table, streams, outs))
}

fn parts(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let mut buffer = streams[0].alloc::<u8>(64 * n)?;
    let mut round = || -> Result<()> {
        let mut parts = streams.iter().zip(buffer.chunks_mut(64)?);
        parts.try_for_each(|(stream, part)| Ok(stream.fill(part, 1)?))
    };
    // The first round creates the entries.
    round()?;
    leave(in_rounds(n, round)?, (streams, buffer))
}

fn churn(n: usize, pending: bool) -> Result<f64> {
    PENDING.store(pending, Ordering::Relaxed);
    let (home, table) = table()?;
    let come_and_go = || -> Result<()> {
        let stream = device()?.create_stream()?;
        let mut out = stream.alloc::<u8>(64)?;
        Ok(stream.copy(&table, &mut out)?)
    };
    (0..n).try_for_each(|_| come_and_go())?;
    leave(each_of(REPEATS, come_and_go)?, (home, table))
}

type Flight = InFlight<Vec<u8>>;

/// Enqueues owned uploads to the same buffer.
fn uploads(stream: &Stream, buffer: &mut DeviceBuffer<u8>, n: usize) -> Result<Vec<Flight>> {
    let mut upload = || stream.upload_owned(vec![1; 64], &mut *buffer).map_err(Error::from);
    (0..n).map(|_| Ok(upload()?)).collect()
}

fn flights(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc(64)?;
    let cost = cost(n, || uploads(&stream, &mut buffer, n).map(mem::forget))?;
    leave(cost, buffer)
}

fn landings(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc(64)?;
    let mut flights = uploads(&stream, &mut buffer, n)?.into_iter();
    stream.synchronize()?;
    let land = |flight: Flight| Ok(flight.wait().map(drop)?);
    cost(n, || flights.try_for_each(land))
}

fn waits(n: usize) -> Result<f64> {
    let waiting = device()?.create_stream()?;
    let streams = streams_of(n)?;
    let mut buffers = block_of_each(&streams, 64)?;
    let (mut nanoseconds, rounds) = (0.0, OPERATIONS.div_ceil(n).max(2));
    for _ in 0..rounds {
        let mut pairs = streams.iter().zip(&mut buffers);
        pairs.try_for_each(|(stream, buffer)| stream.fill(buffer, 1))?;
        nanoseconds += cost(n, || fill_all(&waiting, &mut buffers))?;
    }
    leave(nanoseconds / rounds as f64, (streams, buffers))
}

fn mesh(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let mut buffers = block_of_each(&streams, 64)?;
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let step = || streams[random()].fill(&mut buffers[random()], 1);
    leave(each_of(OPERATIONS, step)?, (streams, buffers))
}

fn pending(n: usize) -> Result<f64> {
    let (home, other) = (device()?.create_stream()?, device()?.create_stream()?);
    let mut buffers = blocks(&home, n, 512)?;
    fill_all(&other, &mut buffers)?;
    cost(n, || {
        drop(buffers);
        mem::forget(home.alloc::<u8>(512)?);
        PENDING.store(false, Ordering::Relaxed);
        other.synchronize()?;
        mem::forget(home.alloc::<u8>(512)?);
        Ok(())
    })
}

fn in_turn(n: usize) -> Result<f64> {
    let (home, other) = (device()?.create_stream()?, device()?.create_stream()?);
    let step = || -> Result<()> {
        let mut buffer = home.alloc::<u8>(512)?;
        Ok(other.fill(&mut buffer, 1)?)
    };
    (0..n).try_for_each(|_| step())?;
    each_of(REPEATS, step)
}

fn fragments(n: usize) -> Result<f64> {
    let home = device()?.create_stream()?;
    let mut buffers = blocks(&home, 2 * n, 512)?;
    fill_all(&home, &mut buffers)?;
    let every_other = |(index, buffer)| (index % 2 == 0).then_some(buffer);
    let kept: Vec<_> = buffers.into_iter().enumerate().filter_map(every_other).collect();
    drop(home);
    let streams = streams_of(200)?;
    leave(first_blocks(&streams, 1024)?, (kept, streams))
}

fn first(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    leave(first_blocks(&streams, 512)?, streams)
}

/// Returns the nanoseconds of allocating a block on each stream.
fn first_blocks(streams: &[Stream], bytes: usize) -> Result<f64> {
    cost(streams.len(), || block_of_each(streams, bytes).map(mem::forget))
}

fn large(n: usize) -> Result<f64> {
    const LARGE: usize = 50;
    let streams = streams_of(n)?;
    let blocks = block_of_each(&streams, 512)?;
    let alloc = |index: usize| Ok(streams[index % n].alloc::<u8>(3 << 20).map(mem::forget)?);
    leave(cost(LARGE, || (0..LARGE).try_for_each(alloc))?, blocks)
}

fn hit(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let buffers = blocks(&stream, n, 512)?;
    let hit = || stream.alloc::<u8>(1024).map(drop);
    hit()?;
    leave(each_of(OPERATIONS, hit)?, buffers)
}

fn fills(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffers = blocks(&stream, n, 512)?;
    leave(in_rounds(n, || fill_all(&stream, &mut buffers))?, buffers)
}

fn streams(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let device = device()?;
    leave(each_of(REPEATS, || device.create_stream().map(drop))?, streams)
}

fn pinned(n: usize) -> Result<f64> {
    let context = device()?.context()?;
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let host = || PinnedBuffer::<u8>::new(&context, 64);
    let buffers = (0..n).map(|_| host()).collect::<cuda_core::Result<Vec<_>>>()?;
    for host in &buffers {
        stream.upload(host, &mut buffer)?;
    }
    // All uploads are pending when the buffers are dropped.
    drop(buffers);
    leave(each_of(REPEATS, || host().map(drop))?, buffer)
}
