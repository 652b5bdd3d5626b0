//! NVRTC: only where the environment names its library, `CUDA_CORE_NVRTC`, or the loader finds it.

use cuda_core::nvrtc::{self, Program};
use cuda_core::{Device, Module, Result};
use support::gpu_test;

const ADD_ONE: &str = r#"extern "C" __global__ void add_one(float *x) { x[threadIdx.x] += 1; }"#;

gpu_test! {
    needs 1, real;
    fn m_nvrtc_compile_a_string_and_launch_it() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let ptx = nvrtc::compile(ADD_ONE)?;
        let add_one = Module::from_ptx(&device.context()?, &ptx)?.function("add_one")?;
        let mut x = stream.alloc_zeroed::<f32>(32)?;
        // SAFETY: an element for each of the 32 threads.
        unsafe { stream.kernel(&add_one).block(32).arg(&mut x).launch() }?;
        let mut back = [0.0; 32];
        stream.download_to(&x, &mut back)?;
        assert_eq!(back, [1.0; 32]);
        Ok(())
    }
}

gpu_test! {
    needs 1, real;
    fn m_nvrtc_binaries() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let cubin = Program::new(ADD_ONE).device(device)?.compile_cubin()?;
        let add_one = Module::from_cubin(&device.context()?, &cubin)?.function("add_one")?;
        let mut x = stream.alloc_zeroed::<f32>(32)?;
        // SAFETY: an element for each of the 32 threads.
        unsafe { stream.kernel(&add_one).block(32).arg(&mut x).launch() }?;
        let mut back = [0.0; 32];
        stream.download_to(&x, &mut back)?;
        assert_eq!(back, [1.0; 32]);
        Ok(())
    }
}
