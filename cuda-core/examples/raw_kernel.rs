//! Launches a kernel from PTX text, then one from CUDA C++ text if NVRTC is installed.

mod shared;

use std::process::ExitCode;

use cuda_core::{Device, Error, EventFlags, Module, kernel, nvrtc};

const LEN: usize = 100_000;
const TIMES: u32 = 100;

kernel! {
    /// `saxpy(float a, const float *x, float *y, unsigned n)`: y[i] += a * x[i]
    fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

const DOUBLE: &str = r#"
extern "C" __global__ void twice(float *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
"#;

fn ptx(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let module = Module::from_ptx(stream.context(), include_str!("saxpy.ptx"))?;
    let saxpy = saxpy::load(&module)?;
    let mut x = stream.alloc::<f32>(LEN)?;
    let mut y = stream.alloc::<f32>(LEN)?;
    stream.fill(&mut x, 3.0)?;
    stream.fill(&mut y, 1.0)?;
    let mut launch = saxpy.on(&stream, 2.0, &x, &mut y, LEN as u32).elements(LEN);
    // SAFETY: the kernel reads n elements of x, and reads and writes n of y; both have as many.
    unsafe { launch.launch() }?;
    let mut back = vec![0.0; LEN];
    stream.download(&y, &mut back)?;
    assert!(back.iter().all(|&element| element == 7.0));
    println!("PTX: 2 * 3 + 1 = {} for {LEN} elements", back[0]);

    // The launch above has loaded the code.
    let mut launch = saxpy.on(&stream, 2.0, &x, &mut y, LEN as u32).elements(LEN);
    let start = stream.record_event(EventFlags::DEFAULT)?;
    for _ in 0..TIMES {
        // SAFETY: as above.
        unsafe { launch.launch() }?;
    }
    let end = stream.record_event(EventFlags::DEFAULT)?;
    end.synchronize()?;
    println!("{:?} for each of {TIMES} launches", end.elapsed_since(&start)? / TIMES);
    Ok(())
}

fn cuda_cpp(device: Device) -> shared::Result {
    let stream = device.create_stream()?;
    let program = nvrtc::Program::new(DOUBLE).name("twice.cu").device(device)?;
    let ptx = match program.compile() {
        Err(Error::NoNvrtc { .. }) => {
            shared::leave_out("CUDA C++", "NVRTC");
            return Ok(());
        }
        compiled => compiled?, // its error has the compiler's log
    };
    let twice = Module::from_ptx(stream.context(), &ptx)?.function("twice")?;
    let mut x = stream.upload_new(&vec![21.0f32; LEN])?;
    let mut launch = stream.kernel(&twice).elements(LEN).arg(&mut x).arg(LEN as u32);
    // SAFETY: twice(float *x, unsigned n) reads and writes n elements of x, which has as many.
    unsafe { launch.launch() }?;
    let back = stream.download_vec(&x)?;
    assert!(back.iter().all(|&element| element == 42.0));
    println!("NVRTC {}: 2 * 21 = {} for {LEN} elements", nvrtc::version()?, back[0]);
    Ok(())
}

fn example() -> shared::Result {
    let device = shared::device()?;
    ptx(device)?;
    cuda_cpp(device)
}

fn main() -> ExitCode {
    shared::run(example)
}
