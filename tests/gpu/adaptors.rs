//! I: adaptors around allocators, used by buffers and directly.

mod failures;
mod hooks;
mod logging;
mod threads;
mod tracking;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::adaptors::{Counter, Limiting, Statistics};
use cuda_core::{
    Allocator, AllocatorError, Device, DeviceAllocator, DeviceBuffer, Error, Result, Stream,
    with_allocator,
};
use support::{gpu_test, refusal};

const MIB: usize = 1 << 20;

fn stream() -> Result<Stream> {
    Device::get(0)?.create_stream()
}

/// Returns an adaptor, for its own methods, and an allocator that uses it.
fn shared<A: DeviceAllocator>(adaptor: A) -> (Arc<A>, Allocator) {
    let adaptor = Arc::new(adaptor);
    let allocator = Allocator::new(Arc::clone(&adaptor));
    (adaptor, allocator)
}

fn alloc(allocator: &Allocator, stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>> {
    with_allocator(allocator, || stream.alloc(bytes))
}

fn counter(value: usize, peak: usize, total: usize) -> Counter {
    let mut counter = Counter::default();
    counter.value = value as i64;
    counter.peak = peak as i64;
    counter.total = total as u64;
    counter
}

fn out_of_memory<T>(result: Result<T>) -> Error {
    let error = result.err().expect("there is less memory");
    let code = Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(error.code(), code, "{error}");
    error
}

/// A writer whose text can be read while an adaptor writes to it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).expect("text")
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i09_statistics() -> Result<()> {
        let stream = stream()?;
        let (statistics, allocator) = shared(Statistics::new(Allocator::driver_pool()));
        let ten = || -> Result<Vec<_>> {
            (0..10).map(|_| alloc(&allocator, &stream, 10 * MIB)).collect()
        };
        let mut buffers = ten()?;
        let mut index = 0;
        buffers.retain(|_| { index += 1; index % 2 == 0 });
        let counters = statistics.counters();
        assert_eq!(counters.bytes, counter(50 * MIB, 100 * MIB, 100 * MIB));
        assert_eq!(counters.blocks, counter(5, 10, 10));
        buffers.extend(ten()?);
        drop(buffers);
        let counters = statistics.counters();
        assert_eq!(counters.bytes, counter(0, 150 * MIB, 200 * MIB));
        assert_eq!(counters.blocks, counter(0, 15, 20));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i10_statistics_nested() -> Result<()> {
        let stream = stream()?;
        let (statistics, allocator) = shared(Statistics::new(Allocator::driver_pool()));
        let first = alloc(&allocator, &stream, 10)?;
        let before = statistics.push();
        assert_eq!(before.bytes, counter(10, 10, 10));
        assert_eq!(statistics.counters().bytes, counter(0, 0, 0));
        let second = alloc(&allocator, &stream, 300)?;
        let third = alloc(&allocator, &stream, 20)?;
        drop(second);
        let inner = statistics.pop()?;
        assert_eq!((inner.bytes, inner.blocks), (counter(20, 320, 320), counter(1, 2, 2)));
        let outer = statistics.counters();
        assert_eq!((outer.bytes, outer.blocks), (counter(30, 330, 330), counter(2, 3, 3)));

        // Memory allocated earlier may be freed inside: the inner value is then negative.
        statistics.push();
        drop(first);
        assert_eq!(statistics.counters().bytes.value, -10);
        drop(third);
        let mut freed = Counter::default();
        freed.value = -2;
        assert_eq!(statistics.pop()?.blocks, freed);
        assert_eq!(statistics.counters().bytes, counter(0, 330, 330));

        assert!(refusal(statistics.pop()).contains("inner counters"));
        assert_eq!(statistics.counters().bytes, counter(0, 330, 330), "nothing has changed");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h06_statistics_sequence() -> Result<()> {
        const UNIT: usize = 512;
        let stream = stream()?;
        let (statistics, allocator) = shared(Statistics::new(Allocator::driver_pool()));
        let used = |units: usize| {
            assert_eq!(statistics.counters().bytes.value, (units * UNIT) as i64);
        };
        let a = alloc(&allocator, &stream, 2 * UNIT)?;
        used(2);
        let b = alloc(&allocator, &stream, 4 * UNIT)?;
        used(6);
        drop(b);
        used(2);
        drop(a);
        used(0);
        let _c = alloc(&allocator, &stream, UNIT)?;
        used(1);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h31_statistics_peak_and_reset() -> Result<()> {
        let stream = stream()?;
        let (statistics, allocator) = shared(Statistics::new(Allocator::driver_pool()));
        let small = alloc(&allocator, &stream, 100)?;
        drop(alloc(&allocator, &stream, 1000)?);
        assert_eq!(statistics.reset_peaks().bytes, counter(100, 1100, 1100));
        assert_eq!(statistics.counters().bytes, counter(100, 100, 1100));
        assert_eq!(statistics.counters().blocks, counter(1, 1, 2));
        drop(small);
        assert_eq!(statistics.counters().bytes, counter(0, 100, 1100), "the total only grows");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i15_limiting() -> Result<()> {
        let stream = stream()?;
        let (limiting, allocator) = shared(Limiting::new(Allocator::driver_pool(), 6 * MIB));
        let first = alloc(&allocator, &stream, 5 * MIB)?;
        let _second = alloc(&allocator, &stream, MIB)?;
        let error = out_of_memory(alloc(&allocator, &stream, 1));
        let expected = "1 byte on top of the 6 MiB in use would exceed the limit of 6 MiB";
        assert_eq!(error.to_string(), expected);
        limiting.set_limit(7 * MIB);
        let third = alloc(&allocator, &stream, MIB)?;
        assert_eq!((limiting.used(), limiting.limit()), (7 * MIB, 7 * MIB));
        // The new limit is below what is in use: every request fails until enough has been freed.
        limiting.set_limit(2 * MIB);
        drop(third);
        out_of_memory(alloc(&allocator, &stream, 1));
        drop(first);
        drop(alloc(&allocator, &stream, MIB)?);
        assert_eq!(limiting.used(), MIB);
        out_of_memory(alloc(&allocator, &stream, usize::MAX / 4));
        assert_eq!(limiting.used(), MIB);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i15_limiting_upstream_fails() -> Result<()> {
        let stream = stream()?;
        let inner = Limiting::new(Allocator::driver_pool(), 2 * MIB);
        let (outer, allocator) = shared(Limiting::new(inner, 5 * MIB));
        let error = out_of_memory(alloc(&allocator, &stream, 4 * MIB));
        assert!(matches!(error, Error::Allocator(ref it) if matches!(**it, AllocatorError::LimitExceeded { limit, .. } if limit == 2 * MIB)), "{error}");
        assert_eq!((outer.used(), outer.inner().used()), (0, 0));
        let buffer = alloc(&allocator, &stream, 2 * MIB)?;
        assert_eq!((outer.used(), outer.inner().used()), (2 * MIB, 2 * MIB));
        drop(buffer);
        assert_eq!((outer.used(), outer.inner().used()), (0, 0));
        Ok(())
    }
}
