//! I: adaptors make no more driver calls than the allocator they wrap; their counters match a model.

mod replay;
mod segments;

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_core::adaptors::{
    Counters, Hooks, Limiting, Logging, OnFailure, Statistics, Tracking, Verdict,
};
use cuda_core::{
    Allocator, AllocatorError, Device, DeviceAllocator, DeviceBuffer, Error, Result, Stream,
    with_allocator,
};
use proptest::prelude::*;
use support::simulator;

#[test]
fn adaptors_do_not_call_the_driver() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let plain = Allocator::driver_pool();
    let names = |allocator: &Allocator| -> Result<Vec<&'static str>> {
        let mark = session.mark();
        let buffer = with_allocator(allocator, || stream.alloc::<u8>(1000))?;
        drop(buffer);
        Ok(session.names_since(mark))
    };
    // The first allocation looks up the pool.
    names(&plain)?;
    let expected = names(&plain)?;
    let logging = Logging::new(plain.clone(), Vec::new()).expect("writing to memory");
    let limiting = Limiting::new(Tracking::new(logging), 1 << 20);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let failing = OnFailure::new(limiting, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Verdict::Retry
    });
    let statistics = Arc::new(Statistics::new(Hooks::new(failing)));
    let adapted = Allocator::new(Arc::clone(&statistics));
    assert_eq!(names(&adapted)?, expected);
    let recorded = statistics.inner().with(|_| (), || names(&adapted))?;
    assert_eq!(recorded, expected);

    let mark = session.mark();
    let inner = statistics.push();
    assert_eq!((inner.blocks.value, inner.blocks.total), (0, 2));
    statistics.pop()?;
    let limiting = statistics.inner().inner().inner();
    assert!(limiting.inner().report().is_empty());
    // A request of zero bytes reaches no allocator; a request beyond the limit reaches no inner one.
    with_allocator(&adapted, || stream.alloc::<u8>(0))?;
    let much = with_allocator(&adapted, || stream.alloc::<u8>(2 << 20));
    assert!(
        matches!(much, Err(Error::Allocator(ref it)) if matches!(**it, AllocatorError::LimitExceeded { .. }))
    );
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing that it frees would help");
    assert_eq!(session.names_since(mark), [""; 0]);
    drop((adapted, statistics, stream));
    session.settle();
    session.assert_clean();
    Ok(())
}

type Meanwhile = Box<dyn FnOnce() + Send>;

/// An allocator with one address, which it allocates again as soon as it is free: before the freeing call
/// returns.
struct Rash {
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    /// The result that a free returns after it has freed.
    says: fn() -> Result<()>,
}

/// The address, which no code accesses.
const ADDRESS: u64 = 0x7000;

// SAFETY: the memory that it allocates is never used.
unsafe impl DeviceAllocator for Rash {
    fn allocate(&self, _: &Stream, _: usize) -> Result<u64> {
        Ok(ADDRESS)
    }

    unsafe fn deallocate(&self, _: &Stream, _: u64, bytes: usize) -> Result<()> {
        let meanwhile = self.meanwhile.lock().expect("no panic").take();
        let Some(meanwhile) = meanwhile else {
            assert_eq!(bytes, 300, "what was allocated last");
            return Ok(());
        };
        meanwhile();
        (self.says)()
    }
}

/// A writer that keeps its text for reading.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_address_may_come_back_before_its_free_returns() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let (meanwhile, text) = (Arc::default(), Text::default());
    let tracking = Tracking::new(Rash { meanwhile: Arc::clone(&meanwhile), says: || Ok(()) });
    let logging = Logging::new(tracking, text.clone()).expect("writing to memory");
    let outer = Arc::new(Statistics::new(Limiting::new(Hooks::new(logging), 1000)));
    outer.allocate(&stream, 100)?;
    // No lock is held during calls of the inner allocator: another thread could do this, and here the same
    // one does.
    let (same, on) = (Arc::clone(&outer), stream.clone());
    let again = move || _ = same.allocate(&on, 300).expect("within the limit");
    *meanwhile.lock().expect("no panic") = Some(Box::new(again) as Meanwhile);
    // SAFETY: allocated above, and not used.
    unsafe { outer.deallocate(&stream, ADDRESS, 100) }?;

    let logging = outer.inner().inner().inner();
    let outstanding = logging.inner().outstanding();
    let found: Vec<_> = outstanding.iter().map(|b| (b.number, b.address, b.bytes)).collect();
    assert_eq!(found, [(1, ADDRESS, 300)]);
    assert_eq!((outer.counters().bytes.value, outer.inner().used()), (300, 300));
    let text = String::from_utf8(text.0.lock().expect("no panic").clone());
    let text = text.expect("text");
    let ops = text.lines().skip(2);
    let ops: Vec<Vec<_>> = ops.map(|line| line.split(',').skip(4).collect()).collect();
    assert_eq!(
        ops,
        [
            ["allocate", "0x7000", "100"],
            ["deallocate", "0x7000", "100"],
            ["allocate", "0x7000", "300"],
        ]
    );
    drop((outer, stream));
    session.settle();
    Ok(())
}

#[test]
fn an_address_may_come_back_although_its_free_failed() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let meanwhile = Arc::default();
    let tracking = Arc::new(Tracking::new(Rash {
        meanwhile: Arc::clone(&meanwhile),
        // The driver may return an earlier launch's error this way.
        says: || Err(Error::ContextInUse),
    }));
    tracking.allocate(&stream, 100)?;
    let (same, on) = (Arc::clone(&tracking), stream.clone());
    let again = move || _ = same.allocate(&on, 300).expect("it hands out all");
    *meanwhile.lock().expect("no panic") = Some(Box::new(again) as Meanwhile);
    // SAFETY: allocated above, and not used.
    unsafe { tracking.deallocate(&stream, ADDRESS, 100) }.expect_err("so it says");
    // SAFETY: as above; the address now belongs to this allocation.
    unsafe { tracking.deallocate(&stream, ADDRESS, 300) }?;
    let report = tracking.report();
    assert!(report.is_empty() && report.mismatched == 0, "{report}");
    drop((tracking, stream));
    session.settle();
    Ok(())
}

/// One operation on memory under statistics.
#[derive(Debug, Clone)]
enum Act {
    Allocate(usize),
    Free(usize),
    Push,
    Pop,
    ResetPeak,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (1..5000usize).prop_map(Act::Allocate),
        3 => any::<usize>().prop_map(Act::Free),
        1 => Just(Act::Push),
        1 => Just(Act::Pop),
        1 => Just(Act::ResetPeak),
    ];
    prop::collection::vec(act, 1..if cfg!(miri) { 20 } else { 80 })
}

/// A model of the counters: each scope sees all allocations.
#[derive(Default)]
struct Book {
    /// Bytes and blocks: at present, and in total.
    value: [i64; 2],
    total: [u64; 2],
    scopes: Vec<Scope>,
}

/// The allocated bytes and blocks when a scope began, and the peak since then.
#[derive(Clone, Copy, Default)]
struct Scope {
    value: [i64; 2],
    total: [u64; 2],
    peak: [i64; 2],
}

impl Book {
    fn change(&mut self, bytes: i64) {
        for (index, amount) in [bytes, bytes.signum()].into_iter().enumerate() {
            self.value[index] += amount;
            self.total[index] += amount.max(0) as u64;
        }
        for scope in &mut self.scopes {
            for index in 0..2 {
                scope.peak[index] = scope.peak[index].max(self.value[index]);
            }
        }
    }

    fn begin(&mut self) {
        self.scopes.push(Scope { value: self.value, total: self.total, peak: self.value });
    }

    fn innermost(&self) -> Counters {
        let scope = self.scopes[self.scopes.len() - 1];
        let mut counters = Counters::default();
        for (index, counter) in [&mut counters.bytes, &mut counters.blocks].into_iter().enumerate()
        {
            counter.value = self.value[index] - scope.value[index];
            counter.peak = scope.peak[index] - scope.value[index];
            counter.total = self.total[index] - scope.total[index];
        }
        counters
    }
}

fn agrees(stream: &Stream, acts: &[Act]) -> Result<(), TestCaseError> {
    let fails = |error: Error| TestCaseError::fail(error.to_string());
    let statistics = Arc::new(Statistics::new(Tracking::new(Allocator::driver_pool())));
    let allocator = Allocator::new(Arc::clone(&statistics));
    let mut book = Book::default();
    book.begin();
    let mut buffers: Vec<DeviceBuffer<u8>> = Vec::new();
    for act in acts {
        match act {
            Act::Allocate(bytes) => {
                let buffer = with_allocator(&allocator, || stream.alloc(*bytes)).map_err(fails)?;
                buffers.push(buffer);
                book.change(*bytes as i64);
            }
            Act::Free(_) if buffers.is_empty() => {}
            Act::Free(which) => {
                let buffer = buffers.swap_remove(which % buffers.len());
                book.change(-(buffer.len() as i64));
            }
            Act::Push => {
                prop_assert_eq!(statistics.push(), book.innermost());
                book.begin();
            }
            Act::Pop if book.scopes.len() == 1 => {
                let refused = matches!(statistics.pop(), Err(Error::Invalid(ref it)) if it.reason.contains("inner counters"));
                prop_assert!(refused, "there are no inner counters");
            }
            Act::Pop => {
                prop_assert_eq!(statistics.pop().map_err(fails)?, book.innermost());
                book.scopes.pop();
            }
            Act::ResetPeak => {
                prop_assert_eq!(statistics.reset_peaks(), book.innermost());
                let value = book.value;
                if let Some(scope) = book.scopes.last_mut() {
                    scope.peak = value;
                }
            }
        }
        prop_assert_eq!(statistics.counters(), book.innermost());
        let outstanding = statistics.inner().outstanding();
        let bytes: usize = outstanding.iter().map(|block| block.bytes).sum();
        prop_assert_eq!((bytes as i64, outstanding.len() as i64), (book.value[0], book.value[1]));
    }
    Ok(())
}

#[test]
fn h06_nested_counters_agree_with_the_book() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let config = crate::property::config(if cfg!(miri) { 4 } else { 128 });
    proptest!(config, |(acts in acts())| agrees(&stream, &acts)?);
    drop(stream);
    session.settle();
    session.assert_clean();
    Ok(())
}

/// When it is dropped, uses the tracking allocator.
struct Asks(Arc<Tracking<Allocator>>);

impl std::fmt::Write for Asks {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        self.0.allocations();
        Ok(())
    }
}

#[test]
fn i_a_formatter_uses_the_allocator_that_it_shows() {
    let tracking = Arc::new(Tracking::new(Allocator::plain()));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::fmt::Write as _;
        let _ = write!(Asks(tracking.clone()), "{tracking:?}");
        let _ = done.send(());
    });
    is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("no lock is held");
}
