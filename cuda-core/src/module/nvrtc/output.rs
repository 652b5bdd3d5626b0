//! The results of a compilation.

use crate::util::debug_by;

/// The results of a compilation besides the code.
#[derive(Debug, Clone)]
pub(super) struct Output {
    pub(super) log: String,
    /// Expressions with their mangled names.
    pub(super) names: Vec<(String, String)>,
}

impl Output {
    fn lowered_name(&self, expression: &str) -> Option<&str> {
        let (_, lowered) = self.names.iter().find(|(known, _)| known == expression)?;
        Some(lowered)
    }
}

/// PTX text, from [`Program::compile`](super::Program::compile), for
/// [`Module::from_ptx`](crate::Module::from_ptx).
///
/// ```no_run
/// use cuda_core::nvrtc::Program;
///
/// let ptx = Program::new("__global__ void nothing() {}").compile()?;
/// println!("{}{}", ptx.log(), ptx.as_str());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ptx {
    text: String,
    output: Output,
}

impl Ptx {
    pub(super) fn new(text: String, output: Output) -> Self {
        Self { text, output }
    }

    /// The PTX text.
    #[doc(alias("nvrtcGetPTX"))]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The compiler's log, with its warnings.
    #[doc(alias("nvrtcGetProgramLog"))]
    pub fn log(&self) -> &str {
        &self.output.log
    }

    /// The mangled name of an expression given with
    /// [`Program::name_expression`](super::Program::name_expression).
    #[doc(alias("nvrtcGetLoweredName"))]
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        self.output.lowered_name(expression)
    }
}

impl AsRef<str> for Ptx {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// A binary for devices of one architecture, from
/// [`Program::compile_cubin`](super::Program::compile_cubin) or
/// [`Linker::complete`](crate::jit::Linker::complete).
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::{Module, nvrtc::Program};
///
/// let program = Program::new("extern \"C\" __global__ void nothing() {}").device(device)?;
/// let cubin = program.compile_cubin()?; // runs on devices of this capability only
/// let nothing = Module::from_cubin(&device.context()?, &cubin)?.function("nothing")?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Cubin {
    // INVARIANT: a whole image, as NVRTC or the driver's linker wrote it; not empty.
    image: Vec<u8>,
    output: Output,
}

impl Cubin {
    /// `image`, which is not empty, must be what NVRTC wrote, unchanged.
    pub(super) fn new(image: Vec<u8>, output: Output) -> Self {
        Self { image, output }
    }

    /// `image`, which is not empty, must be what the driver's linker wrote, unchanged.
    pub(crate) fn linked(image: Vec<u8>, log: String) -> Self {
        Self::new(image, Output { log, names: Vec::new() })
    }

    /// The bytes of the image.
    #[doc(alias("nvrtcGetCUBIN"))]
    pub fn as_bytes(&self) -> &[u8] {
        &self.image
    }

    /// The log of the compiler, or of the linker, with warnings.
    #[doc(alias("nvrtcGetProgramLog"))]
    pub fn log(&self) -> &str {
        &self.output.log
    }

    /// The mangled name of an expression given with
    /// [`Program::name_expression`](super::Program::name_expression).
    #[doc(alias("nvrtcGetLoweredName"))]
    pub fn lowered_name(&self, expression: &str) -> Option<&str> {
        self.output.lowered_name(expression)
    }
}

debug_by! { [] Cubin: |it| "Cubin({} bytes)", it.image.len() }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_mangled_names() {
        let names = vec![("f<int>".to_owned(), "_Z1fIiE".to_owned())];
        let cubin = Cubin::new(vec![0x7f], Output { log: String::new(), names });
        assert_eq!(cubin.lowered_name("f<int>"), Some("_Z1fIiE"));
        assert_eq!(cubin.lowered_name("f<float>"), None);
    }
}
