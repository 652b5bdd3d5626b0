use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use super::{Work, end, with_help};
use crate::util::lock;

/// All tests share the threads, so one test runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Numbers that the work crosses off, each once.
struct List {
    next: AtomicUsize,
    open: AtomicUsize,
    crossed: Vec<AtomicUsize>,
}

impl List {
    fn new(len: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            crossed: (0..len).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn done(&self) -> usize {
        let crossed = self.crossed.iter();
        crossed.map(|times| times.load(Ordering::Acquire)).sum()
    }
}

impl Work for List {
    fn step(&self) -> bool {
        let next = &self.next;
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.open.load(Ordering::Acquire)).then_some(next + 1)
        });
        if let Ok(taken) = taken {
            self.crossed[taken].fetch_add(1, Ordering::AcqRel);
        }
        taken.is_ok()
    }

    fn is_ready(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.open.load(Ordering::Acquire)
    }
}

#[test]
fn every_piece_is_done_once() {
    let _turn = lock(&TURN);
    const LEN: usize = if cfg!(miri) { 40 } else { 2000 };
    for helpers in [0, 1, 3] {
        for burst in [1, 7, LEN] {
            let list = List::new(LEN);
            with_help(&list, helpers, |help| {
                for open in (burst..LEN).step_by(burst).chain([LEN]) {
                    list.open.store(open, Ordering::Release);
                    help.call();
                    while list.step() {}
                }
                while list.done() < LEN {
                    thread::yield_now();
                }
            });
            let crossed = list.crossed.iter().map(|times| times.load(Ordering::Relaxed));
            assert!(crossed.into_iter().all(|times| times == 1));
        }
    }
    end();
}

#[test]
fn several_callers_at_once() {
    let _turn = lock(&TURN);
    const LEN: usize = if cfg!(miri) { 10 } else { 500 };
    thread::scope(|scope| {
        for helpers in 1..4 {
            scope.spawn(move || {
                for _ in 0..3 {
                    let list = List::new(LEN);
                    with_help(&list, helpers, |help| {
                        list.open.store(LEN, Ordering::Release);
                        help.call();
                        while list.done() < LEN {
                            list.step();
                            thread::yield_now();
                        }
                    });
                    assert_eq!(list.done(), LEN);
                }
            });
        }
    });
    end();
}

/// Work that only other threads can do; `step` is what they do.
struct Elsewhere<F> {
    here: ThreadId,
    open: AtomicUsize,
    step: F,
}

impl<F: Fn() + Sync> Work for Elsewhere<F> {
    fn step(&self) -> bool {
        let mine = thread::current().id() == self.here;
        let open = self.open.load(Ordering::Acquire) > 0;
        if !mine && open && self.open.swap(0, Ordering::AcqRel) > 0 {
            (self.step)();
            return true;
        }
        false
    }

    fn is_ready(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }
}

fn elsewhere<F: Fn() + Sync>(step: F) -> Elsewhere<F> {
    Elsewhere { here: thread::current().id(), open: AtomicUsize::new(1), step }
}

#[test]
fn a_panic_of_a_helper_reaches_the_caller() {
    let _turn = lock(&TURN);
    let work = elsewhere(|| panic_any(42));
    let caught = catch_unwind(AssertUnwindSafe(|| {
        with_help(&work, 2, |help| {
            while !help.has_failed() {
                help.call();
                thread::yield_now();
            }
        });
    }));
    let payload = caught.expect_err("the helper's panic");
    assert_eq!(payload.downcast_ref(), Some(&42));
    // The threads still work.
    let done = AtomicUsize::new(0);
    let work = elsewhere(|| _ = done.fetch_add(1, Ordering::AcqRel));
    with_help(&work, 2, |help| {
        while done.load(Ordering::Acquire) == 0 {
            help.call();
            thread::yield_now();
        }
    });
    end();
}

/// Announces that the caller is leaving.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Release);
    }
}

#[test]
fn a_panic_of_the_caller_waits_for_who_helps() {
    let _turn = lock(&TURN);
    let [inside, leaves, left] = [const { AtomicUsize::new(0) }; 3];
    let work = elsewhere(|| {
        inside.store(1, Ordering::Release);
        while leaves.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // Long after the caller would have left.
        for _ in 0..if cfg!(miri) { 50 } else { 5000 } {
            thread::yield_now();
        }
        left.store(1, Ordering::Release);
    });
    let caught = catch_unwind(AssertUnwindSafe(|| {
        with_help(&work, 1, |help| {
            let _leaves = Leaves(&leaves);
            while inside.load(Ordering::Acquire) == 0 {
                help.call();
                thread::yield_now();
            }
            // Bypasses the panic hook, which takes time.
            resume_unwind(Box::new("the caller's own"));
        });
    }));
    assert_eq!(left.load(Ordering::Acquire), 1, "a thread was still inside");
    let payload = caught.expect_err("the caller's panic");
    assert_eq!(payload.downcast_ref(), Some(&"the caller's own"));
    end();
}

#[test]
fn threads_end_and_begin_again() {
    let _turn = lock(&TURN);
    for _ in 0..3 {
        let done = AtomicUsize::new(0);
        let work = elsewhere(|| _ = done.fetch_add(1, Ordering::AcqRel));
        with_help(&work, 1, |help| {
            while done.load(Ordering::Acquire) == 0 {
                help.call();
                thread::yield_now();
            }
        });
        end();
        end();
    }
}
