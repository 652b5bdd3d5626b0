//! Adds vectors on a GPU.

use cuda_core::{DeviceBuffer, Function, Module, Result, Stream};

/// The kernels of this crate, loaded into the context of a stream.
#[derive(Debug)]
pub struct Kernels {
    saxpy: Function,
}

impl Kernels {
    /// Loads the kernels.
    pub fn load(stream: &Stream) -> Result<Self> {
        let module = Module::from_ptx(stream.context(), include_str!("saxpy.ptx"))?;
        Ok(Self { saxpy: module.function("saxpy")? })
    }

    /// `y += a * x`, asynchronously.
    ///
    /// # Panics
    /// If the lengths differ, or exceed 32 bits.
    pub fn saxpy(
        &self,
        stream: &Stream,
        a: f32,
        x: &DeviceBuffer<f32>,
        y: &mut DeviceBuffer<f32>,
    ) -> Result<()> {
        assert_eq!(x.len(), y.len());
        let len = u32::try_from(y.len()).expect("a length of 32 bits");
        let mut launch = stream.kernel(&self.saxpy).elements(y.len()).arg(a).arg(x).arg(y).arg(len);
        // SAFETY: saxpy(float a, const float *x, float *y, unsigned n) reads n elements of x, and
        // reads and writes n elements of y. Both have n.
        unsafe { launch.launch() }
    }
}

/// Sends values to the GPU and back.
pub fn there_and_back(stream: &Stream, values: &[f32]) -> Result<Vec<f32>> {
    let buffer = stream.upload_new(values)?;
    stream.download_vec(&buffer)
}
