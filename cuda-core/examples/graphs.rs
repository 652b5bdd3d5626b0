//! Graphs: a step of work captured once and launched many times; a sequence of calls that becomes a
//! wide graph; a graph of two devices.

mod shared;

use std::process::ExitCode;
use std::time::Instant;

use cuda_core::{Device, DeviceBuffer, Graph, Module, Stream, kernel};

const LEN: usize = 1 << 12;
const STEPS: usize = 50;
const PARTS: usize = 16;

kernel! {
    /// y[i] += a * x[i]
    fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

/// `STEPS` kernels. This function knows nothing of graphs.
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

/// The input is a buffer that is written before each launch.
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
        exec.launch(&stream)?; // behind the upload
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

/// The calls are in a sequence; their order is that of what they do to memory.
fn data_flow(device: Device) -> shared::Result {
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
    assert_eq!(graph.edge_count()?, PARTS, "each copy behind one fill");
    graph.instantiate()?.launch(&stream)?;
    let back = stream.download_vec(&whole)?;
    assert!(back.chunks(LEN).zip(0..).all(|(part, number)| part == [number as f32; LEN]));
    println!("by data flow: {graph}");
    Ok(())
}

/// One stream on each device; the copy between them orders the rest.
fn two_devices(devices: [Device; 2]) -> shared::Result {
    let contexts = [devices[0].context()?, devices[1].context()?];
    let stream = contexts[1].create_stream()?;
    let mut near = contexts[0].create_stream()?.alloc::<f32>(LEN)?;
    let mut far = stream.alloc::<f32>(LEN)?;
    let graph = Graph::capture_on(contexts.each_ref(), |[here, _there]| {
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
    data_flow(device)?;
    match Device::get(1) {
        Ok(other) => two_devices([device, other]),
        Err(_) => {
            println!("two devices: there is one");
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    shared::run(example)
}
