//! M13: the process ends while everything is alive.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cuda_core::{
    CachingPool, Context, ContextFlags, ContextLocal, Device, DeviceBuffer, DeviceGroup, Error,
    Event, EventFlags, MemoryPool, PerThreadStream, PinnedBuffer, Registered, Result, Signal,
    Stream, StreamPool, WaitValue, pinned::RegisterFlags,
};
use cuda_sim::{Config, Session};
use support::{Watchdog, WatchedHost, gpu_test, one_stream, pattern, two_streams};

use support::child;

unsafe extern "C" {
    /// Registers a function for the end of the process; the last registered runs first.
    pub(crate) safe fn atexit(callback: extern "C" fn()) -> c_int;
}

/// One of everything, with work in flight on it.
struct Everything {
    _per_thread: PerThreadStream,
    _shared: Shared,
}

/// The part of it that is `Send`: any thread may drop it.
struct Shared {
    context: Context,
    stream: Stream,
    event: Event,
    buffer: DeviceBuffer<u8>,
    pinned: PinnedBuffer<u8>,
    _cached: DeviceBuffer<u8>,
    _pool: CachingPool,
    _pooled: Option<DeviceBuffer<u8>>,
    _drivers: Option<MemoryPool>,
    _streams: (StreamPool, DeviceGroup),
    _registered: Registered<Vec<u8>>,
}

impl Shared {
    fn new(context: &Context) -> Result<Self> {
        let stream = context.create_stream()?;
        let mut pinned = PinnedBuffer::from_slice(context, &pattern(1, 1 << 20))?;
        let mut buffer = stream.alloc::<u8>(1 << 20)?;
        stream.upload(&pinned, &mut buffer)?;
        stream.download(&buffer, &mut pinned)?;
        stream.upload(&[1, 2, 3], buffer.slice_mut(..3)?)?;
        let event = Event::new(context, EventFlags::DEFAULT)?;
        event.record(&stream)?;
        let pool = CachingPool::new();
        let mut cached = stream.alloc_with::<u8>(&pool.allocator(), 1000)?;
        stream.fill(&mut cached, 1)?;
        // Freed while a stream uses it, so that the pool keeps it.
        let mut freed = stream.alloc_with::<u8>(&pool.allocator(), 5 << 20)?;
        stream.fill(&mut freed, 1)?;
        drop(freed);
        let (mut pooled, mut drivers) = (None, None);
        if context.is_primary() {
            let pool = MemoryPool::builder(context.device()).build()?;
            let mut buffer = stream.alloc_from::<u8>(&pool, 1000)?;
            stream.fill(&mut buffer, 1)?;
            (pooled, drivers) = (Some(buffer), Some(pool));
        }
        let registered = Registered::new(context, vec![1u8; 4096], RegisterFlags::PORTABLE);
        Ok(Self {
            _cached: cached,
            _pool: pool,
            _pooled: pooled,
            _drivers: drivers,
            _streams: (context.stream_builder().build_pool(2)?, DeviceGroup::all()?),
            _registered: registered?,
            context: context.clone(),
            stream,
            event,
            buffer,
            pinned,
        })
    }
}

static STATIC: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

thread_local! {
    static LOCAL: RefCell<Vec<Everything>> = const { RefCell::new(Vec::new()) };
}

/// Fills the static and the thread's local, in a primary and in a created context.
fn fill() -> Result<()> {
    let primary = Device::get(0)?.context()?;
    let created = Context::new(Device::get(0)?, ContextFlags::default())?;
    for context in [&primary, &created] {
        STATIC.lock().expect("no panic").push(Shared::new(context)?);
        let per_thread = context.per_thread_stream()?;
        let mut shared = Shared::new(context)?;
        per_thread.fill(&mut shared.buffer, 1)?;
        let everything = Everything { _per_thread: per_thread, _shared: shared };
        LOCAL.with(|local| local.borrow_mut().push(everything));
    }
    // Left current, which makes the thread keep the context alive.
    created.set_current()?;
    // A value that one of the library's threads drops.
    let owned = Shared::new(&primary)?;
    let stream = primary.create_stream()?;
    stream.launch_host_func(move || drop(owned))?;
    stream.synchronize()
}

/// Exits with all of it alive; the thread's locals are dropped on the way.
pub(crate) fn leave() -> ! {
    child::done();
    std::process::exit(0);
}

gpu_test! {
    needs 1;
    fn m13_process_exit() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        fill()?;
        leave()
    }
}

gpu_test! {
    needs 1;
    fn m13_process_exit_from_another_thread() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        fill()?;
        std::thread::spawn(|| leave());
        loop {
            std::thread::park();
        }
    }
}

/// Drops the statics, before or after the library's exit handler has run.
extern "C" fn drop_statics() {
    let everything = std::mem::take(&mut *STATIC.lock().expect("no panic"));
    drop(everything);
}

gpu_test! {
    needs 1;
    fn m13_dropped_before_the_driver() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        fill()?;
        assert_eq!(atexit(drop_statics), 0);
        leave()
    }
}

/// Uses the statics after the exit handler, as destructors of other libraries may.
extern "C" fn use_statics() {
    let mut statics = std::mem::take(&mut *STATIC.lock().expect("no panic"));
    let mut answers = Vec::new();
    for shared in &mut statics {
        answers.extend([
            shared.stream.synchronize().err(),
            shared.stream.alloc::<u8>(1).err(),
            shared.stream.fill(&mut shared.buffer, 1).err(),
            shared.event.query().err(),
            shared.context.enter().err(),
            shared.pinned.as_slice().err(),
            shared.context.device().name().err(),
            Device::get(0).err(),
        ]);
    }
    drop(statics);
    let refused = |answer: &Option<Error>| matches!(answer, Some(Error::Exiting));
    if answers.is_empty() || !answers.iter().all(refused) || cuda_core::drops::failures() != 0 {
        eprintln!("while the process exits: {answers:?}");
        std::process::abort();
    }
}

gpu_test! {
    needs 1;
    fn m13_used_after_the_driver() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        // Registered before the library registers its own, so called after it.
        assert_eq!(atexit(use_statics), 0);
        fill()?;
        leave()
    }
}

/// Another library's handle: its destructor would call the driver.
struct Handle {
    buffer: DeviceBuffer<u8>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The context is current in this drop, or the handle was leaked: the drop never runs
        // without a driver.
        if self.buffer.context().enter().is_err() {
            eprintln!("a handle was dropped after the driver");
            std::process::abort();
        }
    }
}

static SLOT: ContextLocal<Handle> = ContextLocal::new(|context: &Context| {
    Ok(Handle { buffer: context.create_stream()?.alloc(1 << 10)? })
});

gpu_test! {
    needs 1;
    fn m13_process_exit_with_library_handles() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let primary = Device::get(0)?.context()?;
        let created = Context::new(Device::get(0)?, ContextFlags::default())?;
        // On this thread, on one that ends, and on one that lives on; each thread drops its own
        // handle, or none does.
        for context in [&primary, &created] {
            SLOT.with(context, |_| Ok(()))?;
        }
        let context = created.clone();
        let ended = std::thread::spawn(move || SLOT.with(&context, |_| Ok(())));
        ended.join().expect("no panic")?;
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = ready.send(SLOT.with(&created, |_| Ok(())));
            loop {
                std::thread::park();
            }
        });
        is_ready.recv().expect("it is sent")?;
        leave()
    }
}

gpu_test! {
    needs 1;
    fn m13_process_exit_from_a_deferred_drop() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let (context, stream) = one_stream()?;
        let memory = WatchedHost::new(vec![1_u8; 4096], |_| leave());
        let registered = Registered::new(&context, memory, RegisterFlags::NONE);
        let registered = registered.map_err(|rejected| {
            std::mem::forget(rejected.value);
            rejected.error
        })?;
        drop_elsewhere(&stream, registered)
    }
}

/// Drops the value on one of the library's threads, and waits here until that drop ends the
/// process.
fn drop_elsewhere(stream: &Stream, value: impl Send + 'static) -> ! {
    stream.launch_host_func(move || drop(value)).expect("a host function can be launched");
    let _ = stream.synchronize();
    loop {
        std::thread::park();
    }
}

gpu_test! {
    needs 1;
    fn m13_process_exit_from_a_hook_of_a_deferred_drop() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_1"), &[]) {
            return Ok(());
        }
        let (context, stream) = one_stream()?;
        let registered = Registered::new(&context, vec![1u8; 4096], RegisterFlags::NONE);
        let mut registered = registered?;
        let address = registered.as_mut_slice()?.as_mut_ptr();
        // Unregistered without the library's knowledge, so that its drop finds nothing to
        // unregister.
        let _guard = context.enter()?;
        // SAFETY: registered above, and no work uses it.
        let code = unsafe { cuda_sys::cuMemHostUnregister(address.cast()) };
        assert_eq!(code, cuda_sys::CUDA_SUCCESS);
        cuda_core::drops::set_hook(|_: &_| leave());
        drop_elsewhere(&stream, registered)
    }
}

/// The simulated driver in a process of the test's own, which a watchdog ends if it hangs.
pub(crate) fn simulated() -> &'static Session {
    cuda_sim::install(Config::from_env()).expect("a process without a driver");
    std::mem::forget(Watchdog::start("the process"));
    Box::leak(Box::new(Session::begin()))
}

#[test]
fn m13_process_exit_while_a_deferred_drop_waits() -> Result<()> {
    let name = "::m13_process_exit_while_a_deferred_drop_waits";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    let session = simulated();
    let (context, held_up, other) = two_streams()?;
    let never = Signal::new(&context, 0u32)?;
    let mut buffer = context.alloc::<u8>(1 << 20)?;
    held_up.wait_signal(&never, WaitValue::Geq(1))?;
    held_up.fill(&mut buffer, 1)?;
    let waits = session.calls("cuEventSynchronize");
    other.launch_host_func(move || drop(buffer))?;
    other.synchronize()?;
    session.await_calls("cuEventSynchronize", waits + 1);
    std::mem::forget((held_up, never));
    leave()
}

#[test]
fn m13_process_exit_in_a_host_function_that_a_deferred_drop_waits_for() -> Result<()> {
    let name = "::m13_process_exit_in_a_host_function_that_a_deferred_drop_waits_for";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    let session = simulated();
    let (context, stream) = one_stream()?;
    let source = Arc::new(context.alloc::<u8>(1 << 20)?);
    let mut target = context.alloc::<u8>(1 << 20)?;
    let waits = session.calls("cuEventSynchronize");
    let (last, is_last) = mpsc::channel();
    let there = Arc::clone(&source);
    stream.launch_host_func(move || {
        is_last.recv().expect("it is sent");
        // Its release is deferred, and waits for the copy after this function.
        drop(there);
        session.await_calls("cuEventSynchronize", waits + 1);
        leave()
    })?;
    stream.copy(&*source, &mut target)?;
    drop(source);
    last.send(()).expect("it runs");
    let _ = stream.synchronize();
    loop {
        std::thread::park();
    }
}

static OUTLASTED: AtomicBool = AtomicBool::new(false);

/// Where the driver's own handler would run.
extern "C" fn require_the_end_of_the_drop() {
    if !OUTLASTED.load(Ordering::Acquire) {
        eprintln!("the driver goes while what a copy owned is dropped");
        std::process::abort();
    }
}

#[test]
fn m13_process_exit_while_a_thread_that_waited_drops_an_owner() -> Result<()> {
    let name = "::m13_process_exit_while_a_thread_that_waited_drops_an_owner";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    assert_eq!(atexit(require_the_end_of_the_drop), 0);
    simulated();
    let (context, stream) = one_stream()?;
    let mut buffer = stream.alloc::<u8>(4096)?;
    let go = Signal::new(&context, 0u32)?;
    stream.wait_signal(&go, WaitValue::Geq(1))?;
    let (begins, begun) = mpsc::channel();
    // Its drop lasts until the process exits, and a little longer.
    let outlasts = WatchedHost::new(vec![1_u8; 4096], move |_| {
        begins.send(()).expect("it is awaited");
        while Device::get(0).is_ok() {
            std::thread::yield_now();
        }
        // Not a wait: the length of the drop. The exit waits for a second.
        std::thread::sleep(Duration::from_millis(10));
        OUTLASTED.store(true, Ordering::Release);
    });
    drop(stream.upload_owned(outlasts, &mut buffer)?);
    go.set(1);
    begun.recv().expect("it is sent");
    leave()
}
