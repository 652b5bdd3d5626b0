//! Threads that help the caller to copy host memory.
//!
//! [`with_help`] lends a [`Work`] to helper threads for one call, and returns once no helper works on it any
//! more. Meanwhile the caller works on the same pieces. The helpers call nothing but [`Work::step`], so they
//! never call the driver. They are started when first needed, and sleep without work until [`end`].

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::util::{OnDrop, lock, wait_while};

#[cfg(test)]
mod tests;

/// Work for several threads at once, in pieces that each thread takes when it is free.
pub(crate) trait Work: Sync {
    /// Does one piece. Returns false if none is available at present.
    fn step(&self) -> bool;

    /// Whether a step would probably find something to do.
    fn is_ready(&self) -> bool;
}

/// The greatest number of helper threads.
pub(crate) const MOST: usize = 64;

/// How long a thread without work spins before it sleeps: about as long as waking a thread takes.
const PATIENCE: Duration = Duration::from_micros(if cfg!(miri) { 0 } else { 20 });

/// The number of sleeping threads that each caller, and each woken thread, wakes.
const FAN_OUT: usize = 2;

/// One call of [`with_help`]; lives on its caller's stack.
struct HelpJob<'w> {
    work: &'w dyn Work,
    /// The number of helper threads inside the job.
    inside: AtomicUsize,
    /// Tells the helpers inside the job to leave.
    over: AtomicBool,
    has_panicked: AtomicBool,
    panic: Mutex<Option<Payload>>,
}

type Payload = Box<dyn Any + Send>;

struct Listed {
    // INVARIANT: valid while it is listed, and while the job counts a thread as inside.
    job: NonNull<HelpJob<'static>>,
    /// The number of threads that may be inside at once.
    helpers: usize,
}

// SAFETY: all parts of a job may be used from any thread: its work is `Sync`, and so is the rest.
unsafe impl Send for Listed {}

struct Team {
    jobs: Vec<Listed>,
    threads: Vec<JoinHandle<()>>,
    /// Raised to end the threads of earlier generations.
    generation: u64,
}

static TEAM: Mutex<Team> =
    Mutex::new(Team { jobs: Vec::new(), threads: Vec::new(), generation: 0 });

/// Notified when there is something to do.
static CALLED: Condvar = Condvar::new();

/// Raised whenever there is something to do.
static NEWS: AtomicU64 = AtomicU64::new(0);

/// The number of threads that sleep, or are about to.
static ASLEEP: AtomicUsize = AtomicUsize::new(0);

/// Notified when a thread has left a job while a caller waits for that.
static LEFT: Condvar = Condvar::new();

/// The number of callers that wait for threads to leave.
static LEAVING: AtomicUsize = AtomicUsize::new(0);

/// The handle that [`with_help`] passes to the body.
pub(crate) struct Help<'j> {
    /// [`None`] without helpers.
    job: Option<&'j HelpJob<'j>>,
    /// Belongs to the calling thread.
    _not_send: PhantomData<*const ()>,
}

/// Runs `body` while up to `helpers` other threads do steps of `work`. Returns once none of them is inside
/// any more, even if `body` panics.
///
/// # Panics
/// If a step panicked on one of those threads, panics with the same payload.
pub(crate) fn with_help<R>(
    work: &dyn Work,
    helpers: usize,
    body: impl FnOnce(&Help<'_>) -> R,
) -> R {
    let alone = Help { job: None, _not_send: PhantomData };
    if helpers == 0 {
        return body(&alone);
    }
    let job = HelpJob {
        work,
        inside: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        has_panicked: AtomicBool::new(false),
        panic: Mutex::new(None),
    };
    let value = {
        let _enlisted = job.enlist(helpers.min(MOST));
        body(&Help { job: Some(&job), ..alone })
    };
    let panic = lock(&job.panic).take();
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
    value
}

impl Help<'_> {
    /// Announces that there is something to do, or soon will be.
    pub(crate) fn call(&self) {
        if self.job.is_some() {
            NEWS.fetch_add(1, Ordering::SeqCst);
            wake();
        }
    }

    /// Whether a step panicked on another thread: its piece will not be done.
    pub(crate) fn has_failed(&self) -> bool {
        self.job.is_some_and(|job| job.has_panicked.load(Ordering::Acquire))
    }
}

/// Wakes sleeping threads, at most [`FAN_OUT`].
fn wake() {
    // Either this thread sees the one about to sleep, or that one sees the earlier announcement.
    fence(Ordering::SeqCst);
    let asleep = ASLEEP.load(Ordering::SeqCst);
    if asleep == 0 {
        return;
    }
    // A thread holds the lock between its last look and its sleep.
    drop(lock(&TEAM));
    for _ in 0..FAN_OUT.min(asleep) {
        CALLED.notify_one();
    }
}

impl HelpJob<'_> {
    /// Lists the job until the returned value is dropped.
    fn enlist(&self, helpers: usize) -> OnDrop<impl FnOnce()> {
        let mut team = lock(&TEAM);
        team.start(helpers);
        team.jobs.push(Listed { job: NonNull::from(self).cast(), helpers });
        OnDrop::new(|| self.delist())
    }

    /// Removes the job from the list, and waits until no helper is inside.
    fn delist(&self) {
        let address = NonNull::from(self).cast();
        // No helper enters from here on: helpers enter under the lock, and only listed jobs.
        lock(&TEAM).jobs.retain(|listed| listed.job != address);
        self.over.store(true, Ordering::Release);
        let is_empty = || self.inside.load(Ordering::Acquire) == 0;
        if linger(is_empty) {
            return;
        }
        LEAVING.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        drop(wait_while(&LEFT, lock(&TEAM), |_| !is_empty()));
        LEAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Team {
    /// Starts threads until there are as many as wanted, or the system refuses.
    fn start(&mut self, wanted: usize) {
        while self.threads.len() < wanted {
            let generation = self.generation;
            let started = thread::Builder::new()
                .name("cuda-core worker".to_owned())
                .spawn(move || serve(generation));
            match started {
                Ok(thread) => self.threads.push(thread),
                // The caller then does more of the work itself.
                Err(_) => return,
            }
        }
    }

    /// Returns the open job with the fewest helpers, after counting the calling thread as inside, and whether
    /// the job wants another helper.
    fn enter(&self) -> Option<(NonNull<HelpJob<'static>>, bool)> {
        let open = self.jobs.iter().filter_map(|listed| {
            // SAFETY: by the invariant of `Listed` the job is valid while it is listed, and the
            // lock that guards `self` keeps it listed.
            let job = unsafe { listed.job.as_ref() };
            let inside = job.inside.load(Ordering::Relaxed);
            (inside < listed.helpers && job.work.is_ready()).then_some((inside, job, listed))
        });
        let (inside, job, listed) = open.min_by_key(|(inside, ..)| *inside)?;
        job.inside.fetch_add(1, Ordering::Relaxed);
        Some((listed.job, inside + 1 < listed.helpers))
    }
}

/// Does steps of any job that has work, until this generation's threads must end.
fn serve(generation: u64) {
    let mut team = lock(&TEAM);
    // A thread that has just been woken stays awake for a while: the work that it was woken for may be about
    // to begin.
    let mut woken = true;
    while team.generation == generation {
        let news = NEWS.load(Ordering::SeqCst);
        if let Some((job, wants_more)) = team.enter() {
            drop(team);
            if wants_more {
                wake();
            }
            // SAFETY: `enter` has counted this thread as inside.
            unsafe { help(job) };
            woken = false;
            team = lock(&TEAM);
        } else if woken {
            drop(team);
            woken = linger(|| NEWS.load(Ordering::Relaxed) != news);
            team = lock(&TEAM);
        } else {
            ASLEEP.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if NEWS.load(Ordering::SeqCst) == news {
                team = CALLED.wait(team).unwrap_or_else(PoisonError::into_inner);
            }
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
            woken = true;
        }
    }
}

/// Spins for about as long as waking a sleeping thread takes; returns whether `came` became true.
fn linger(mut came: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if came() {
            return true;
        }
        if started.elapsed() >= PATIENCE {
            return false;
        }
        std::hint::spin_loop();
    }
}

/// Does steps of the job until it has had none for a while, then leaves it.
///
/// # Safety
/// The job counts this thread as inside. After the call it does not.
unsafe fn help(job: NonNull<HelpJob<'static>>) {
    {
        // SAFETY: the job counts this thread as inside, so it is valid.
        let job = unsafe { job.as_ref() };
        let steps = AssertUnwindSafe(|| {
            let is_over = || job.over.load(Ordering::Acquire);
            while !is_over() && (job.work.step() || linger(|| is_over() || job.work.is_ready())) {}
        });
        if let Err(payload) = catch_unwind(steps) {
            let first = lock(&job.panic).replace(payload);
            // Dropping an earlier payload might panic in turn.
            std::mem::forget(first);
            job.has_panicked.store(true, Ordering::Release);
        }
    }
    // SAFETY: the job counts this thread as inside, so it is valid. Accessed through its address, since a
    // reference to all of the job would have to stay valid for longer than the job does: its owner may
    // destroy it as soon as the next statement has run.
    let inside = unsafe { &raw const (*job.as_ptr()).inside };
    // SAFETY: the owner keeps the job while it counts this thread, which is until this statement; nothing
    // accesses the job afterwards.
    unsafe { &*inside }.fetch_sub(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    if LEAVING.load(Ordering::SeqCst) > 0 {
        drop(lock(&TEAM));
        LEFT.notify_all();
    }
}

/// Ends the threads and joins them. Later work starts new ones.
pub(crate) fn end() {
    let threads = {
        let mut team = lock(&TEAM);
        team.generation += 1;
        std::mem::take(&mut team.threads)
    };
    CALLED.notify_all();
    for thread in threads {
        // The thread has caught the panics of its steps.
        drop(thread.join());
    }
}
