//! M13: the process ends while NCCL is called, or before it is called for the last time.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use cuda_core::interop::ShareableHandle;
use cuda_core::nccl::{self, Ranks, Reduction};
use cuda_core::virtual_memory::{PhysicalMemory, VirtualBuffer};
use cuda_core::{Device, Error, Graph, Result, Signal, WaitValue};
use support::{child, gpu_test};

use crate::exit::{atexit, leave, simulated};

type Abort = unsafe extern "C" fn(*mut c_void) -> c_int;

static BEGINS: OnceLock<Sender<()>> = OnceLock::new();
static FREED: AtomicBool = AtomicBool::new(false);

/// Frees a communicator, which lasts until the process exits, and a little longer.
unsafe extern "C" fn slow_abort(raw: *mut c_void) -> c_int {
    BEGINS.get().expect("set before").send(()).expect("it is awaited");
    while Device::get(0).is_ok() {
        std::thread::yield_now();
    }
    // Not a wait: the length of the call. The exit waits for a second.
    std::thread::sleep(Duration::from_millis(10));
    // SAFETY: the simulated function of that name.
    let abort: Abort = unsafe { std::mem::transmute(cuda_sim::symbol(c"ncclCommAbort")) };
    // SAFETY: the caller's communicator.
    let code = unsafe { abort(raw) };
    FREED.store(true, Ordering::Release);
    code
}

/// Where NCCL's own destructors would run.
extern "C" fn require_the_end() {
    if !FREED.load(Ordering::Acquire) {
        eprintln!("NCCL goes while it is called");
        std::process::abort();
    }
}

#[test]
fn m13_process_exit_while_a_communicator_is_freed() -> Result<()> {
    let name = "::m13_process_exit_while_a_communicator_is_freed";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    simulated();
    let symbol = |name: &CStr| match name {
        name if name == c"ncclCommAbort" => slow_abort as *const c_void,
        name => cuda_sim::symbol(name),
    };
    // SAFETY: the functions of the simulated NCCL, and one that calls it.
    unsafe { nccl::install(symbol) }?;
    let (begins, begun) = mpsc::channel();
    BEGINS.set(begins).expect("set once");
    let ranks = Ranks::init_all([&Device::get(0)?.context()?])?;
    // NCCL is loaded after the driver, and so goes first.
    assert_eq!(atexit(require_the_end), 0);
    drop(ranks);
    begun.recv().expect("it is sent");
    leave()
}

type Deregister = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// [`slow_abort`] for memory.
unsafe extern "C" fn slow_deregister(raw: *mut c_void, handle: *mut c_void) -> c_int {
    BEGINS.get().expect("set before").send(()).expect("it is awaited");
    while Device::get(0).is_ok() {
        std::thread::yield_now();
    }
    // Not a wait: the length of the call.
    std::thread::sleep(Duration::from_millis(10));
    let function = cuda_sim::symbol(c"ncclCommDeregister");
    // SAFETY: the simulated function of that name.
    let deregister: Deregister = unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's communicator and registration.
    let code = unsafe { deregister(raw, handle) };
    FREED.store(true, Ordering::Release);
    code
}

#[test]
fn m13_process_exit_while_memory_is_deregistered() -> Result<()> {
    let name = "::m13_process_exit_while_memory_is_deregistered";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    simulated();
    let symbol = |name: &CStr| match name {
        name if name == c"ncclCommDeregister" => slow_deregister as *const c_void,
        name => cuda_sim::symbol(name),
    };
    // SAFETY: the functions of the simulated NCCL, and one that calls it.
    unsafe { nccl::install(symbol) }?;
    let (begins, begun) = mpsc::channel();
    BEGINS.set(begins).expect("set once");
    let context = Device::get(0)?.context()?;
    assert_eq!(atexit(require_the_end), 0);
    let ranks = Ranks::init_all([&context])?;
    let len = 1 << 19;
    let mut buffer = VirtualBuffer::<u32>::new(&context, len)?;
    buffer.append(PhysicalMemory::new(&context, 4 * len, ShareableHandle::PosixFd)?)?;
    let mut buffer = ranks.register(buffer).map_err(Error::from)?;
    let stream = context.create_stream()?;
    let go = Signal::new(&context, 0u32)?;
    stream.wait_signal(&go, WaitValue::Eq(1))?;
    stream.fill(&mut buffer, 1)?;
    drop(buffer);
    go.set(1);
    begun.recv().expect("it is sent");
    leave()
}

static GONE: AtomicBool = AtomicBool::new(false);

/// Frees a communicator, unless NCCL's destructors have begun.
unsafe extern "C" fn checked_abort(raw: *mut c_void) -> c_int {
    if GONE.load(Ordering::Acquire) {
        eprintln!("a communicator is freed after NCCL has gone");
        std::process::abort();
    }
    // SAFETY: the simulated function of that name.
    let abort: Abort = unsafe { std::mem::transmute(cuda_sim::symbol(c"ncclCommAbort")) };
    // SAFETY: the caller's communicator.
    unsafe { abort(raw) }
}

extern "C" fn destructors_of_nccl() {
    GONE.store(true, Ordering::Release);
    // Not a wait: how long they take.
    std::thread::sleep(Duration::from_millis(10));
}

/// The launch keeps the communicator until it ends, which is during the exit.
#[test]
fn m13_process_exit_while_a_graph_with_ranks_is_pending() -> Result<()> {
    let name = "::m13_process_exit_while_a_graph_with_ranks_is_pending";
    if child::ran(&[module_path!(), name].concat(), &[]) {
        return Ok(());
    }
    simulated();
    let symbol = |name: &CStr| match name {
        name if name == c"ncclCommAbort" => checked_abort as *const c_void,
        name => cuda_sim::symbol(name),
    };
    // SAFETY: the functions of the simulated NCCL, and one that calls it.
    unsafe { nccl::install(symbol) }?;
    let context = Device::get(0)?.context()?;
    assert_eq!(atexit(destructors_of_nccl), 0);
    let ranks = Ranks::init_all([&context])?;
    let stream = context.create_stream()?;
    let mut sums = vec![stream.alloc_zeroed::<u32>(100)?];
    let graph = Graph::capture([&context], |streams| {
        ranks.on(streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)
    })?;
    let mut exec = graph.instantiate()?;
    let go = Signal::new(&context, 0u32)?;
    stream.wait_signal(&go, WaitValue::Eq(1))?;
    exec.launch(&stream)?;
    drop((exec, graph, ranks));
    std::thread::spawn(move || {
        while !GONE.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        go.set(1);
    });
    leave()
}

gpu_test! {
    needs 2, nccl;
    fn m13_process_exit_after_a_communicator_with_graphs() -> Result<()> {
        if child::ran(concat!(module_path!(), "::needs_2"), &[]) {
            return Ok(());
        }
        let contexts = Device::contexts(Device::all()?.take(2))?;
        let ranks = Ranks::init_all(&contexts)?;
        let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>>>()?;
        let zeroed = streams.iter().map(|stream| stream.alloc_zeroed::<u32>(1 << 20));
        let mut buffers = zeroed.collect::<Result<Vec<_>>>()?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |streams| {
            ranks.on(streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum)
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        streams[0].synchronize()?;
        drop((graph, ranks));
        leave()
    }
}
