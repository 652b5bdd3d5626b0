//! The modes: which objects there are many of, and which operation is measured.

use std::mem;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use cuda_core::{Device, DeviceBuffer, PinnedBuffer, Stream};

use super::driver::PENDING;

/// One row of the table.
pub(super) struct Mode {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Nanoseconds per operation, with this many objects.
    pub(super) cost: fn(usize) -> Result<f64>,
}

macro_rules! modes {
    ($($name:literal: $cost:expr, $what:literal;)*) => {
        &[$(Mode { name: $name, what: $what, cost: $cost }),*]
    };
}

pub(super) const MODES: &[Mode] = modes! {
    "readers": readers, "a copy from what N streams read";
    "writer": writer, "a write behind N readers, for each";
    "parts": parts, "a fill of one of N parts, each another stream's";
    "churn": |n| churn(n, true), "a stream that reads a table and goes, N pending";
    "churn-done": |n| churn(n, false), "a stream that reads a table and goes, all done";
    "flights": flights, "an owned upload beside N";
    "landings": landings, "the end of one of N owned uploads";
    "waits": waits, "a wait for one of N streams";
    "mesh": mesh, "a wait of one of N streams for another";
    "pending": pending, "the return of N blocks from another stream, for each";
    "in-turn": in_turn, "alloc, use elsewhere, drop: N pending";
    "fragments": fragments, "the first block of a stream beside N fragments";
    "first": first, "the first block of each of N streams";
    "large": large, "a large block beside N streams";
    "hit": hit, "a hit of the cache beside N buffers";
    "fills": fills, "a fill of one of N buffers";
    "streams": streams, "create and drop a stream beside N";
    "pinned": pinned, "a pinned buffer beside N";
};

/// The mean is taken over at least this many operations.
const OPERATIONS: usize = 20_000;

fn each(since: Instant, operations: usize) -> f64 {
    since.elapsed().as_nanos() as f64 / operations as f64
}

fn device() -> Result<Device> {
    Ok(Device::get(0)?)
}

fn streams_of(n: usize) -> Result<Vec<Stream>> {
    let device = device()?;
    (0..n).map(|_| Ok(device.create_stream()?)).collect()
}

fn block_of_each(streams: &[Stream], bytes: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    let blocks = streams.iter().map(|stream| Ok(stream.alloc(bytes)?));
    blocks.collect()
}

fn blocks(stream: &Stream, n: usize, bytes: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    (0..n).map(|_| Ok(stream.alloc(bytes)?)).collect()
}

/// Leaks the objects, whose drop is not measured: the process ends.
fn leave<T>(cost: f64, left: T) -> Result<f64> {
    mem::forget(left);
    Ok(cost)
}

/// A buffer, and streams that have read it.
struct Readers {
    home: Stream,
    table: DeviceBuffer<u8>,
    streams: Vec<Stream>,
    outs: Vec<DeviceBuffer<u8>>,
}

impl Readers {
    fn new(n: usize) -> Result<Self> {
        let home = device()?.create_stream()?;
        let table = home.alloc(64)?;
        home.synchronize()?;
        let streams = streams_of(n)?;
        let outs = block_of_each(&streams, 64)?;
        let mut readers = Self { home, table, streams, outs };
        readers.read()?;
        Ok(readers)
    }

    fn read(&mut self) -> Result<()> {
        for (stream, out) in self.streams.iter().zip(&mut self.outs) {
            stream.copy(&self.table, out)?;
        }
        Ok(())
    }
}

fn readers(n: usize) -> Result<f64> {
    let mut readers = Readers::new(n)?;
    let rounds = OPERATIONS.div_ceil(n);
    let start = Instant::now();
    for _ in 0..rounds {
        readers.read()?;
    }
    leave(each(start, n * rounds), readers)
}

fn writer(n: usize) -> Result<f64> {
    let mut readers = Readers::new(n)?;
    let start = Instant::now();
    readers.home.fill(&mut readers.table, 1)?;
    leave(each(start, n), readers)
}

fn parts(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let mut buffer = streams[0].alloc::<u8>(64 * n)?;
    let mut rounds = 0;
    let mut start = Instant::now();
    while rounds == 0 || rounds * n < OPERATIONS {
        for (stream, part) in streams.iter().zip(buffer.chunks_mut(64)?) {
            stream.fill(part, 1)?;
        }
        if rounds == 0 {
            start = Instant::now();
        }
        rounds += 1;
    }
    // The first round created the entries.
    for (stream, part) in streams.iter().zip(buffer.chunks_mut(64)?) {
        stream.fill(part, 2)?;
    }
    leave(each(start, n * rounds), (streams, buffer))
}

fn churn(n: usize, pending: bool) -> Result<f64> {
    PENDING.store(pending, Ordering::Relaxed);
    let home = device()?.create_stream()?;
    let table = home.alloc::<u8>(64)?;
    home.synchronize()?;
    let come_and_go = || -> Result<()> {
        let stream = device()?.create_stream()?;
        let mut out = stream.alloc::<u8>(64)?;
        stream.copy(&table, &mut out)?;
        Ok(())
    };
    (0..n).try_for_each(|_| come_and_go())?;
    let more = 1000;
    let start = Instant::now();
    (0..more).try_for_each(|_| come_and_go())?;
    leave(each(start, more), (home, table))
}

fn flights(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let mut flights = Vec::with_capacity(n);
    let start = Instant::now();
    for _ in 0..n {
        let flight = stream.upload_owned(vec![1; 64], &mut buffer);
        flights.push(flight.map_err(|(error, _)| error)?);
    }
    leave(each(start, n), (flights, buffer))
}

fn landings(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let mut upload = || {
        let flight = stream.upload_owned(vec![1; 64], &mut buffer);
        flight.map_err(|(error, _)| error)
    };
    let flights: Vec<_> = (0..n).map(|_| upload()).collect::<cuda_core::Result<_>>()?;
    stream.synchronize()?;
    let start = Instant::now();
    for flight in flights {
        flight.wait().map_err(|(error, _)| error)?;
    }
    Ok(each(start, n))
}

fn waits(n: usize) -> Result<f64> {
    let waiting = device()?.create_stream()?;
    let streams = streams_of(n)?;
    let mut buffers = block_of_each(&streams, 64)?;
    let (mut nanoseconds, rounds) = (0.0, OPERATIONS.div_ceil(n).max(2));
    for _ in 0..rounds {
        for (stream, buffer) in streams.iter().zip(&mut buffers) {
            stream.fill(buffer, 1)?;
        }
        let start = Instant::now();
        for buffer in &mut buffers {
            waiting.fill(buffer, 2)?;
        }
        nanoseconds += each(start, n);
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
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        streams[random()].fill(&mut buffers[random()], 1)?;
    }
    leave(each(start, OPERATIONS), (streams, buffers))
}

fn pending(n: usize) -> Result<f64> {
    let (home, other) = (device()?.create_stream()?, device()?.create_stream()?);
    let mut buffers = blocks(&home, n, 512)?;
    for buffer in &mut buffers {
        other.fill(buffer, 1)?;
    }
    let start = Instant::now();
    drop(buffers);
    let meanwhile = home.alloc::<u8>(512)?;
    PENDING.store(false, Ordering::Relaxed);
    other.synchronize()?;
    let after = home.alloc::<u8>(512)?;
    leave(each(start, n), (meanwhile, after))
}

fn in_turn(n: usize) -> Result<f64> {
    let (home, other) = (device()?.create_stream()?, device()?.create_stream()?);
    let step = || -> Result<()> {
        let mut buffer = home.alloc::<u8>(512)?;
        Ok(other.fill(&mut buffer, 1)?)
    };
    (0..n).try_for_each(|_| step())?;
    let more = 1000;
    let start = Instant::now();
    (0..more).try_for_each(|_| step())?;
    Ok(each(start, more))
}

fn fragments(n: usize) -> Result<f64> {
    let home = device()?.create_stream()?;
    let mut buffers = blocks(&home, 2 * n, 512)?;
    for buffer in &mut buffers {
        home.fill(buffer, 1)?;
    }
    let every_other = |(index, buffer)| (index % 2 == 0).then_some(buffer);
    let kept: Vec<_> = buffers.into_iter().enumerate().filter_map(every_other).collect();
    drop(home);
    let streams = streams_of(200)?;
    let start = Instant::now();
    let first = block_of_each(&streams, 1024)?;
    leave(each(start, streams.len()), (kept, streams, first))
}

fn first(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let start = Instant::now();
    let blocks = block_of_each(&streams, 512)?;
    leave(each(start, n), (streams, blocks))
}

fn large(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let blocks = block_of_each(&streams, 512)?;
    let start = Instant::now();
    let large = (0..50).map(|index| streams[index % n].alloc::<u8>(3 << 20));
    let large = large.collect::<cuda_core::Result<Vec<_>>>()?;
    leave(each(start, large.len()), (streams, blocks, large))
}

fn hit(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let buffers = blocks(&stream, n, 512)?;
    drop(stream.alloc::<u8>(1024)?);
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        drop(stream.alloc::<u8>(1024)?);
    }
    leave(each(start, OPERATIONS), buffers)
}

fn fills(n: usize) -> Result<f64> {
    let stream = device()?.create_stream()?;
    let mut buffers = blocks(&stream, n, 512)?;
    let rounds = OPERATIONS.div_ceil(n);
    let start = Instant::now();
    for _ in 0..rounds {
        for buffer in &mut buffers {
            stream.fill(buffer, 1)?;
        }
    }
    leave(each(start, n * rounds), buffers)
}

fn streams(n: usize) -> Result<f64> {
    let streams = streams_of(n)?;
    let device = device()?;
    let more = 1000;
    let start = Instant::now();
    for _ in 0..more {
        drop(device.create_stream()?);
    }
    leave(each(start, more), streams)
}

fn pinned(n: usize) -> Result<f64> {
    let context = device()?.context()?;
    let stream = device()?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let buffers: Result<Vec<_>, _> =
        (0..n).map(|_| PinnedBuffer::<u8>::new(&context, 64)).collect();
    let buffers = buffers?;
    for host in &buffers {
        stream.upload(host, &mut buffer)?;
    }
    // All are pending when they are dropped.
    drop(buffers);
    let more = 1000;
    let start = Instant::now();
    for _ in 0..more {
        drop(PinnedBuffer::<u8>::new(&context, 64)?);
    }
    leave(each(start, more), buffer)
}
