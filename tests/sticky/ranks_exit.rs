//! M13: the process ends while communicators are freed.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use cuda_core::nccl::{self, Ranks, Reduction};
use cuda_core::{Device, Graph, Result};
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
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: the simulated function of that name.
    let abort: Abort = unsafe { std::mem::transmute(cuda_sim::symbol(c"ncclCommAbort")) };
    // SAFETY: the caller's communicator.
    let code = unsafe { abort(raw) };
    FREED.store(true, Ordering::Release);
    code
}

/// Where NCCL's own destructors would run.
extern "C" fn require_the_end_of_the_abort() {
    if !FREED.load(Ordering::Acquire) {
        eprintln!("NCCL goes while a communicator is freed");
        std::process::abort();
    }
}

#[test]
fn m13_process_exit_while_a_communicator_is_freed() -> Result<()> {
    if !child::is_this() {
        let name = "::m13_process_exit_while_a_communicator_is_freed";
        child::run(&[module_path!(), name].concat(), &[]);
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
    assert_eq!(atexit(require_the_end_of_the_abort), 0);
    drop(ranks);
    begun.recv().expect("it is sent");
    leave()
}

gpu_test! {
    needs 2, nccl;
    fn m13_process_exit_after_a_communicator_with_graphs() -> Result<()> {
        if !child::is_this() {
            child::run(concat!(module_path!(), "::needs_2"), &[]);
            return Ok(());
        }
        let contexts = Device::contexts(Device::all()?.take(2))?;
        let ranks = Ranks::init_all(&contexts)?;
        let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>>>()?;
        let zeroed = streams.iter().map(|stream| stream.alloc_zeroed::<u32>(1 << 20));
        let mut buffers = zeroed.collect::<Result<Vec<_>>>()?;
        let graph = Graph::capture_on([&contexts[0], &contexts[1]], |streams| {
            ranks.on(streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum)
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        streams[0].synchronize()?;
        drop((graph, ranks));
        leave()
    }
}
