//! Times in cudarc the operations that `cargo xtask bench` times in cuda-core, under the same names.
//!
//! Arguments and output are those of `xtask/bench/peers.py`: `--batches=N NAME...`, and a line of JSON with
//! the version, or with the reason why nothing can be measured, then one line for each operation. Batches are
//! timed as there. cudarc is used with its defaults: streams come from `new_stream`, and events track each
//! use of a buffer.
//!
//! Exit code: 0 measured, 2 no driver or no GPU.

use std::env;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUgraphInstantiate_flags;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
use cudarc::driver::{self, CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream};
use cudarc::driver::{HostSlice, LaunchConfig, PinnedHostSlice, PushKernelArg};
use cudarc::nccl::result::NcclError;
use cudarc::nccl::{self, Comm, ReduceOp};
use cudarc::nvrtc::Ptx;
use serde_json::json;

use Batch::{Bytes, Calls};

const SMALL: usize = 4096;
const MIB: usize = 1 << 20;
const LARGE: usize = 64 * MIB;
const GIB: usize = 1 << 30;

const KERNELS: &str = include_str!("../../kernels.ptx");
const LOCK: &str = include_str!("../Cargo.lock");

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let words = env::args().skip(1);
    let (options, wanted): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with("--"));
    let batches = options.iter().find_map(|option| option.strip_prefix("--batches=")?.parse().ok());
    match Bench::new(batches.unwrap_or(201), wanted).and_then(|bench| measure(&bench)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(absent) => {
            println!("{}", json!({ "absent": absent.to_string() }));
            ExitCode::from(2)
        }
    }
}

/// The work that is timed between two readings of the clock.
#[derive(Clone, Copy)]
enum Batch {
    /// This number of calls.
    Calls(usize),
    /// One call, which moves this number of bytes.
    Bytes(usize),
}

struct Bench {
    batches: usize,
    /// Names of the operations to time; empty for all.
    wanted: Vec<String>,
    /// The contexts of the first two devices, or of the only one.
    contexts: Vec<Arc<CudaContext>>,
}

impl Bench {
    /// Returns an error with the reason if nothing can be measured.
    fn new(batches: usize, wanted: Vec<String>) -> Result<Self> {
        // SAFETY: a library of that name is the driver, whose initialisation has no precondition.
        if !unsafe { driver::sys::is_culib_present() } {
            return Err("it finds no CUDA driver".into());
        }
        let devices = CudaContext::device_count()?.clamp(1, 2);
        let contexts = (0..devices as usize).map(CudaContext::new);
        Ok(Self { batches, wanted, contexts: contexts.collect::<Result<_, _>>()? })
    }

    fn another(&self) -> Result<&Arc<CudaContext>> {
        Ok(self.contexts.get(1).ok_or("there is no other device")?)
    }

    /// Prints the median time of the call that `prepare` returns, or an error.
    fn time<T, E: Into<Box<dyn Error>>, C: FnMut() -> Result<T, E>>(
        &self,
        name: &str,
        batch: Batch,
        prepare: impl FnOnce() -> Result<C>,
    ) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        // cudarc panics if the driver lacks a symbol; the other operations are still measured.
        let took = catch_unwind(AssertUnwindSafe(|| {
            let mut call = prepare()?;
            self.median(|| call().map(drop).map_err(Into::into), batch)
        }));
        let took = took.unwrap_or_else(|panic| {
            let said = panic.downcast::<String>();
            Err(said.map_or_else(|_| "it panicked".to_owned(), |said| *said).into())
        });
        let line = match (took, batch) {
            (Ok(took), Calls(_)) => json!({ "name": name, "figure": took, "unit": "ns" }),
            (Ok(took), Bytes(bytes)) => {
                json!({ "name": name, "figure": bytes as f64 / took, "unit": "GB/s" })
            }
            (Err(error), _) => json!({ "name": name, "error": error.to_string() }),
        };
        // Standard output passes each line on at once, since the caller may end this program.
        println!("{line}");
    }

    /// Returns the median time of a call, in nanoseconds.
    fn median(&self, mut call: impl FnMut() -> Result<()>, batch: Batch) -> Result<f64> {
        let (batches, calls) = match batch {
            Calls(calls) => (self.batches, calls),
            Bytes(_) => (self.batches.min(7), 1),
        };
        let mut times = Vec::new();
        for _ in 0..batches + batches / 10 + 1 {
            let start = Instant::now();
            for _ in 0..calls {
                call()?;
            }
            times.push(start.elapsed().as_nanos() as f64 / calls as f64);
            // The first device last: its context stays current.
            self.contexts.iter().rev().try_for_each(|context| context.synchronize())?;
        }
        let mut times = times.split_off(times.len() - batches);
        times.sort_by(f64::total_cmp);
        Ok((times[(batches - 1) / 2] + times[batches / 2]) / 2.0)
    }
}

/// A kernel with its buffers: it reads the first half and writes the others.
struct Kernel {
    function: CudaFunction,
    buffers: Vec<CudaSlice<u8>>,
    stream: Arc<CudaStream>,
}

impl Kernel {
    fn new(stream: &Arc<CudaStream>, name: &str, buffers: usize) -> Result<Self> {
        let module = stream.context().load_module(Ptx::from_src(KERNELS))?;
        let function = module.load_function(name)?;
        let buffers = (0..buffers).map(|_| stream.alloc_zeros(SMALL));
        let buffers = buffers.collect::<Result<_, _>>()?;
        Ok(Self { function, buffers, stream: stream.clone() })
    }

    fn launch(&mut self) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.function);
        let half = self.buffers.len() / 2;
        let (read, written) = self.buffers.split_at_mut(half);
        for buffer in &*read {
            launch.arg(buffer);
        }
        for buffer in written {
            launch.arg(buffer);
        }
        let shape =
            LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there is one buffer for each parameter; the kernel touches none.
        unsafe { launch.launch(shape) }?;
        Ok(())
    }

    /// Captures and instantiates a graph of `launches` launches.
    fn capture(&mut self, launches: usize) -> Result<CudaGraph> {
        self.stream.begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED)?;
        (0..launches).try_for_each(|_| self.launch())?;
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0))?;
        Ok(graph.ok_or("the capture was invalidated")?)
    }
}

/// Creates a stream to capture on, with event tracking off: the events that track uses would make the stream
/// wait for work outside of the capture, which is an error.
fn untracked() -> Result<Arc<CudaStream>> {
    // An object of its own for the same driver context.
    let context = CudaContext::new(0)?;
    // SAFETY: buffers of this object are used on one stream, which orders their uses.
    unsafe { context.disable_event_tracking() };
    Ok(context.new_stream()?)
}

/// Makes the call, then waits for these streams.
fn waited(
    streams: Vec<Arc<CudaStream>>,
    call: Result<impl FnMut() -> Result<()>>,
) -> Result<impl FnMut() -> Result<()>> {
    let mut call = call?;
    Ok(move || {
        call()?;
        Ok(streams.iter().try_for_each(|stream| stream.synchronize())?)
    })
}

fn upload(
    stream: &Arc<CudaStream>,
    source: Result<impl HostSlice<u8>>,
) -> Result<impl FnMut() -> Result<()>> {
    let source = source?;
    let mut target = stream.alloc_zeros(source.len())?;
    Ok(move || Ok(stream.memcpy_htod(&source, &mut target)?))
}

fn download(
    stream: &Arc<CudaStream>,
    target: Result<impl HostSlice<u8>>,
) -> Result<impl FnMut() -> Result<()>> {
    let mut target = target?;
    let source = stream.alloc_zeros(target.len())?;
    Ok(move || Ok(stream.memcpy_dtoh(&source, &mut target)?))
}

fn graph(stream: &Arc<CudaStream>, launches: usize) -> Result<impl FnMut() -> Result<()>> {
    let mut kernel = Kernel::new(stream, "bench_six", 6)?;
    let graph = kernel.capture(launches)?;
    Ok(move || {
        // Keeps the buffers that the graph uses.
        let _ = &kernel;
        Ok(graph.launch()?)
    })
}

/// Launches a kernel on another stream and a graph, each ordered after the other.
fn in_turn(stream: &Arc<CudaStream>) -> Result<impl FnMut() -> Result<()>> {
    let other = stream.context().new_stream()?;
    let (mut kernel, mut graph) = (Kernel::new(&other, "bench_six", 6)?, graph(stream, 20)?);
    let stream = stream.clone();
    Ok(move || {
        other.join(&stream)?;
        kernel.launch()?;
        stream.join(&other)?;
        graph()
    })
}

fn all_reduce(streams: Vec<Arc<CudaStream>>, bytes: usize) -> Result<impl FnMut() -> Result<()>> {
    // SAFETY: a library of that name is NCCL, whose initialisation has no precondition.
    if !unsafe { nccl::sys::is_culib_present() } {
        return Err("it finds no library of the name libnccl.so".into());
    }
    let named = |NcclError(code)| format!("{code:?}");
    let buffers = streams.iter().map(|stream| stream.alloc_zeros::<f32>(bytes / size_of::<f32>()));
    let mut buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let ranks = Comm::from_devices(streams).map_err(named)?;
    Ok(move || {
        nccl::group_start().map_err(named)?;
        for (rank, buffer) in ranks.iter().zip(&mut buffers) {
            rank.all_reduce_in_place(buffer, &ReduceOp::Sum).map_err(named)?;
        }
        nccl::group_end().map_err(named)?;
        Ok(())
    })
}

/// Times the wanted operations. Returns an error with the reason if nothing can be measured.
fn measure(bench: &Bench) -> Result<()> {
    let context = &bench.contexts[0];
    let (stream, captured) = (&context.new_stream()?, &untracked()?);
    let [main, capturing] = [stream, captured].map(|stream| || vec![stream.clone()]);
    let event = &context.new_event(None)?;
    let (_, version) = LOCK.split_once("\"cudarc\"\nversion = \"").unwrap_or_default();
    println!("{}", json!({ "version": version.split('"').next() }));

    let pinned = |bytes| -> Result<PinnedHostSlice<u8>> {
        // SAFETY: the memory is written before it is read.
        let mut host = unsafe { context.alloc_pinned(bytes) }?;
        host.as_mut_slice()?.fill(1);
        Ok(host)
    };
    let pair = || -> Result<_> { Ok(vec![context.new_stream()?, bench.another()?.new_stream()?]) };
    let pageable = |bytes| Ok(vec![1; bytes]);

    bench.time("guard, context already current", Calls(100), || Ok(|| context.bind_to_thread()));
    bench.time("guard, another context", Calls(100), || {
        let other = bench.another()?;
        // cudarc restores nothing, so this code does.
        Ok(|| other.bind_to_thread().and_then(|()| context.bind_to_thread()))
    });
    bench.time("event record", Calls(100), || Ok(|| event.record(stream)));
    bench.time("stream wait for an event", Calls(100), || {
        event.record(stream)?;
        Ok(|| stream.wait(event))
    });
    bench.time("event create + destroy", Calls(100), || Ok(|| context.new_event(None)));
    bench.time("stream create + destroy", Calls(10), || Ok(|| context.new_stream()));
    bench.time("upload enqueue 4 KiB, pinned", Calls(100), || upload(stream, pinned(SMALL)));
    bench.time("download enqueue 4 KiB, pinned", Calls(100), || download(stream, pinned(SMALL)));
    bench.time("copy enqueue 4 KiB, on device", Calls(100), || {
        let source = stream.alloc_zeros::<u8>(SMALL)?;
        let mut target = stream.alloc_zeros(SMALL)?;
        Ok(move || stream.memcpy_dtod(&source, &mut target))
    });
    // Fills with zeros: cudarc cannot fill with another value.
    bench.time("fill enqueue 4 KiB", Calls(100), || {
        let mut target = stream.alloc_zeros::<u8>(SMALL)?;
        Ok(move || stream.memset_zeros(&mut target))
    });
    bench.time("launch, empty kernel", Calls(100), || {
        let mut kernel = Kernel::new(stream, "bench_nothing", 0)?;
        Ok(move || kernel.launch())
    });
    bench.time("launch, 6 buffers", Calls(100), || {
        let mut kernel = Kernel::new(stream, "bench_six", 6)?;
        Ok(move || kernel.launch())
    });
    bench.time("graph launch, 20 kernels, 6 buffers", Calls(20), || graph(captured, 20));
    // cudarc also instantiates the graph.
    bench.time("capture of 100 kernels with 2 buffers", Calls(1), || {
        let mut kernel = Kernel::new(captured, "bench_two", 2)?;
        Ok(move || kernel.capture(100))
    });
    bench.time("1000 kernels as a graph, by stream", Calls(1), || {
        waited(capturing(), graph(captured, 1000))
    });
    bench.time("graph launch, kernel of another stream, in turn", Calls(20), || in_turn(captured));
    bench.time("all-reduce enqueue 4 KiB, 2 devices", Calls(20), || all_reduce(pair()?, SMALL));
    bench.time("all-reduce + wait 1 GiB, 2 devices", Bytes(GIB), || {
        let streams = pair()?;
        waited(streams.clone(), all_reduce(streams, GIB))
    });
    // SAFETY: nothing reads the memory.
    let alloc = || unsafe { stream.alloc::<u8>(MIB) };
    // cudarc's only pool is the driver's.
    bench.time("alloc + free 1 MiB, cached", Calls(100), || Ok(alloc));
    bench.time("alloc + free 1 MiB, stream-ordered", Calls(100), || Ok(alloc));
    bench.time("alloc + free 1 MiB, pinned", Calls(100), || {
        // SAFETY: nothing reads the memory.
        Ok(|| unsafe { context.alloc_pinned::<u8>(MIB) })
    });
    bench.time("upload + wait 4 KiB, pinned", Calls(20), || {
        waited(main(), upload(stream, pinned(SMALL)))
    });
    bench.time("upload + wait 64 MiB, pinned", Bytes(LARGE), || {
        waited(main(), upload(stream, pinned(LARGE)))
    });
    bench.time("download + wait 64 MiB, pinned", Bytes(LARGE), || {
        waited(main(), download(stream, pinned(LARGE)))
    });
    bench.time("upload 4 KiB, borrowed slice", Calls(100), || upload(stream, pageable(SMALL)));
    bench.time("download 4 KiB, borrowed slice", Calls(20), || {
        waited(main(), download(stream, pageable(SMALL)))
    });
    bench.time("slice upload + wait 64 MiB beside pinned memory", Bytes(LARGE), || {
        waited(main(), upload(stream, pageable(LARGE)))
    });
    bench.time("slice download + wait 64 MiB beside pinned memory", Bytes(LARGE), || {
        waited(main(), download(stream, pageable(LARGE)))
    });
    Ok(())
}
