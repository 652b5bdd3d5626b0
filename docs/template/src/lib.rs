//! Adds vectors on a GPU.

use cuda_core::{DeviceBuffer, Module, Result, Stream, kernel};

kernel! {
    /// `y += a * x`, an element for each of the first `n` threads.
    pub fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

/// The kernels of this crate, loaded into the context of a stream.
#[derive(Debug)]
pub struct Kernels {
    saxpy: saxpy,
}

impl Kernels {
    /// Loads the kernels.
    pub fn load(stream: &Stream) -> Result<Self> {
        let module = Module::from_ptx(stream.context(), include_str!("saxpy.ptx"))?;
        Ok(Self { saxpy: saxpy::load(&module)? })
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
        // SAFETY: the kernel reads `len` elements of `x`, and reads and writes `len` elements of `y`;
        // both have as many.
        unsafe { self.saxpy.on(stream, a, x, y, len).elements(x.len()).launch() }
    }
}

/// Sends values to the GPU and back.
pub fn there_and_back(stream: &Stream, values: &[f32]) -> Result<Vec<f32>> {
    let buffer = stream.upload_new(values)?;
    stream.download_vec(&buffer)
}
