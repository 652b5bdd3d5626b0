//! Graphs: a step of work that is captured once and launched many times; a sequence of calls that becomes a
//! wide graph; a loop that a kernel ends; a graph of two devices. An argument names the toolkit's
//! libcudadevrt.a if it is not at one of the usual places.

mod shared;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use cuda_core::jit::{LinkInput, Linker};
use cuda_core::nvrtc::Program;
use cuda_core::{Condition, Device, DeviceBuffer, Error, Graph, Module, Stream, kernel};

const LEN: usize = 1 << 12;
const STEPS: usize = 50;
const PARTS: usize = 16;

kernel! {
    /// y[i] += a * x[i]
    fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

/// Launches `STEPS` kernels. This function does not know of graphs.
fn step(
    stream: &Stream,
    saxpy: &saxpy,
    x: &DeviceBuffer<f32>,
    y: &mut DeviceBuffer<f32>,
) -> cuda_core::Result<()> {
    for _ in 0..STEPS {
        let mut launch = saxpy.on(stream, 1.0, x, &mut *y, LEN as u32).elements(LEN);
        // SAFETY: both have `LEN` elements.
        unsafe { launch.launch() }?;
    }
    Ok(())
}

/// Captures a graph whose input is a buffer that is written before each launch.
fn static_inputs(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let saxpy = saxpy::load(&Module::from_ptx(stream.context(), include_str!("saxpy.ptx"))?)?;
    let mut x = stream.alloc::<f32>(LEN)?;
    let mut y = stream.alloc_zeroed::<f32>(LEN)?;
    let graph = Graph::capture(stream.context(), |stream| step(stream, &saxpy, &x, &mut y))?;
    println!("captured: {graph}");
    let mut exec = graph.instantiate()?;
    let mut sum = 0.0;
    for input in [1.0f32, 2.0, 3.0] {
        stream.upload(&[input; LEN], &mut x)?;
        exec.launch(&stream)?; // after the upload
        sum += input * STEPS as f32;
        assert!(stream.download_vec(&y)?.iter().all(|&element| element == sum));
    }
    let begin = Instant::now();
    step(&stream, &saxpy, &x, &mut y)?;
    stream.synchronize()?;
    let one_by_one = begin.elapsed();
    let begin = Instant::now();
    exec.launch(&stream)?;
    stream.synchronize()?;
    println!("{STEPS} kernels: {one_by_one:?} one by one, {:?} as a graph", begin.elapsed());
    Ok(())
}

/// Captures a sequence of calls; their accesses to memory order them, not the sequence.
fn by_access(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        parts.push(stream.alloc::<f32>(LEN)?);
    }
    let mut whole = stream.alloc::<f32>(PARTS * LEN)?;
    let graph = Graph::capture_by_access(stream.context(), |stream| {
        for (number, part) in parts.iter_mut().enumerate() {
            stream.fill(part, number as f32)?;
        }
        for (part, to) in parts.iter().zip(whole.chunks_mut(LEN)?) {
            stream.copy(part, to)?;
        }
        Ok(())
    })?;
    assert_eq!(graph.edge_count()?, PARTS, "each copy after one fill");
    graph.instantiate()?.launch(&stream)?;
    let back = stream.download_vec(&whole)?;
    assert!(back.chunks(LEN).zip(0..).all(|(part, number)| part == [number as f32; LEN]));
    println!("by access: {graph}");
    Ok(())
}

/// One step towards the square root of `a`; the condition says whether another one is needed.
const NEWTON: &str = r#"
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

extern "C" __global__ void newton(float a, float *x, unsigned *steps, unsigned long long go_on) {
    *x = 0.5f * (*x + a / *x);
    *steps += 1;
    float error = *x * *x - a;
    cudaGraphSetConditional(go_on, error > 0.001f || error < -0.001f);
}
"#;

/// Finds the toolkit's archive of functions that kernels call.
fn device_runtime() -> Option<PathBuf> {
    let named = env::args_os().nth(1).map(PathBuf::from);
    let toolkits =
        [env::var_os("CUDA_HOME"), env::var_os("CUDA_PATH"), Some("/usr/local/cuda".into())];
    let files = toolkits.into_iter().flatten().flat_map(|toolkit| {
        let places = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
        places.map(|place| Path::new(&toolkit).join(place).join("libcudadevrt.a"))
    });
    named.into_iter().chain(files).find(|file| file.is_file())
}

/// Captures a graph that loops until its kernel finds the error small; the host only launches it.
fn a_loop(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let program = Program::new(NEWTON).device(device)?.option("-rdc=true");
    let ptx = match program.compile() {
        Ok(ptx) => ptx,
        Err(Error::NoNvrtc { .. }) => {
            shared::leave_out("a loop", "NVRTC");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let Some(archive) = device_runtime() else {
        shared::leave_out("a loop", "a toolkit's libcudadevrt.a");
        return Ok(());
    };
    let mut linker = Linker::new(stream.context())?;
    linker.add_ptx(&ptx)?;
    // SAFETY: nvcc made the archive.
    unsafe { linker.add_file(LinkInput::Library, archive) }?;
    let newton = Module::from_cubin(stream.context(), &linker.complete()?)?.function("newton")?;
    let mut x = stream.alloc::<f32>(1)?;
    let mut steps = stream.alloc_zeroed::<u32>(1)?;
    let graph = Graph::capture(stream.context(), |stream| {
        let go_on = Condition::new(stream, 1)?;
        go_on.while_loop(stream, |body| {
            let launch = body.kernel(&newton).block(1).arg(2.0f32).arg(&mut x).arg(&mut steps);
            // SAFETY: `newton` reads and writes one element of each.
            unsafe { launch.arg(&go_on).launch() }
        })
    })?;
    stream.fill(&mut x, 1.0)?;
    graph.instantiate()?.launch(&stream)?;
    let (root, steps) = (stream.download_vec(&x)?[0], stream.download_vec(&steps)?[0]);
    assert!((root * root - 2.0).abs() <= 0.002 && steps > 1);
    println!("a loop: {root} after {steps} steps");
    Ok(())
}

/// Captures one stream on each device; the copy between the devices orders the rest.
fn two_devices(devices: [Device; 2]) -> shared::Result {
    let contexts = [devices[0].context()?, devices[1].context()?];
    let stream = contexts[1].create_stream()?;
    let mut near = contexts[0].create_stream()?.alloc::<f32>(LEN)?;
    let mut far = stream.alloc::<f32>(LEN)?;
    let graph = Graph::capture(contexts.each_ref(), |[here, _there]| {
        here.fill(&mut near, 5.0)?;
        here.copy(&near, &mut far)
    })?;
    graph.instantiate()?.launch(&stream)?;
    assert_eq!(stream.download_vec(&far)?, [5.0; LEN]);
    println!("two devices: {graph}");
    Ok(())
}

fn example() -> shared::Result {
    let device = shared::device()?;
    static_inputs(device)?;
    by_access(device)?;
    a_loop(device)?;
    match Device::get(1) {
        Ok(other) => two_devices([device, other]),
        Err(_) => {
            shared::leave_out("two devices", "two GPUs");
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    shared::run(example)
}
