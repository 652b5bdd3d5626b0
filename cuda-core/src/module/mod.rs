//! Modules: kernels and global variables loaded into a context.

use std::ffi::CString;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cuda_sys::{CUmodule, symbol as cu};

use crate::context::{Context, of_context};
use crate::error::{Error, ModuleError, Rejected, Result, c_string, check};
use crate::process::{Failed, Handle, Owned, Release, owned};
use crate::types::Resource;
use crate::util::{compare_by, debug_by};

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod load;

mod code;
pub(crate) mod function;
mod global;
mod jit;
pub mod kernel;
pub(crate) mod launch;
mod library;
mod linker;
pub mod nvrtc;
mod occupancy;
pub mod tensor_map;
pub(crate) mod work;

pub use function::{Function, FunctionAttribute, FunctionAttributes};
pub use jit::{JitCache, JitFallback, JitOptions};
pub use library::{Kernel, Library};
pub use linker::{LinkInput, Linker};
pub use occupancy::BlockSize;

use code::{ByName, Users};
use function::FoundFunction;
use jit::Outputs;

/// Kernels and global variables, loaded into a context.
///
/// A handle: clones are the same module, and every [`Function`] and global taken from it keeps it
/// loaded. When the last clone, function and global is gone, the crate waits for the kernels
/// launched from the module to complete, then unloads it.
///
/// ```no_run
/// use cuda_core::{Device, Module};
///
/// let device = Device::get(0)?;
/// let module = Module::from_ptx(&device.context()?, r"
///     .version 7.0
///     .target sm_52
///     .address_size 64
///     .visible .entry nothing() { ret; }
/// ")?;
/// let stream = device.create_stream()?;
/// let nothing = module.function("nothing")?;
/// // SAFETY: the kernel has no parameter and touches nothing.
/// unsafe { stream.kernel(&nothing).grid(1).block(32).launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias("CudaModule", "CUmodule", "RawModule"))]
pub struct Module(Arc<Owned<Loaded>>);

/// A loaded module; unloaded with its last handle.
pub(crate) struct Loaded {
    // INVARIANT: a module loaded into `context`, unloaded only by `release`.
    raw: Handle<CUmodule>,
    context: Context,
    users: Users,
    functions: ByName<FoundFunction>,
    outputs: Outputs,
}

/// # The module itself
impl Module {
    /// The compiler's log. Empty if the driver used the cached result of an earlier compilation, or
    /// if the compiler was not [verbose](JitOptions::verbose) and had no warnings.
    pub fn log(&self) -> &str {
        &self.0.outputs.log
    }

    /// The time that the compiler and linker took, as the driver reports it; zero if the module was
    /// in the driver's cache.
    pub fn wall_time(&self) -> Duration {
        self.0.outputs.wall_time
    }

    of_context! { "The context that the module was loaded into.": |it| &it.0.context }

    /// The driver's handle, valid while `self`, a clone, or anything taken from it lives; null for
    /// a module that was [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUmodule {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// If nothing else refers to the module, waits for the kernels launched from it, then unloads
    /// it: `cuModuleUnload`. A drop does the same, and reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// A module with other clones, functions or globals stays loaded until they are gone.
    ///
    /// # Errors
    /// The errors of the wait, which leave the module unchanged; the driver's error of the unload,
    /// after which the module is [given up](Error::GivenUp).
    #[doc(alias("cuModuleUnload"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        owned::close(self.0).map_err(|rejected| rejected.map(Self))
    }
}

/// Returns PTX text as a C string for the driver.
fn ptx_text(op: &'static str, ptx: &str) -> Result<CString> {
    // The driver tells text from a binary by the first bytes, and reads a binary as far as its
    // headers say. So text that could pass for a binary must not reach it.
    Error::unless(begins_as_ptx(ptx), op, "this is no PTX: it does not begin with .version")?;
    c_string(op, ptx)
}

/// Copies the image to memory aligned for the headers of an ELF file, with at least one zero byte
/// after it.
fn aligned(image: &[u8]) -> Vec<u64> {
    let mut aligned = vec![0; image.len() / size_of::<u64>() + 1];
    crate::types::pod::bytes_of_mut(&mut aligned)[..image.len()].copy_from_slice(image);
    aligned
}

fn read_image(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let (path, kind, why) = (path.to_owned(), error.kind(), error.to_string());
        ModuleError::File { path, kind, why }.into()
    })
}

/// Turns a result about the image into [`ModuleError::Compile`] with the log; leaves any other
/// error as it is.
fn compiled(op: &'static str, code: cuda_sys::CUresult, log: String) -> Result<()> {
    match check(op, code) {
        Err(_) if !log.is_empty() || is_about_the_image(code) => {
            Err(ModuleError::Compile { op, code, log }.into())
        }
        result => result,
    }
}

/// Returns whether the code means that the driver could not use the image.
fn is_about_the_image(code: cuda_sys::CUresult) -> bool {
    [
        cuda_sys::CUDA_ERROR_INVALID_IMAGE,
        cuda_sys::CUDA_ERROR_NO_BINARY_FOR_GPU,
        cuda_sys::CUDA_ERROR_INVALID_PTX,
        cuda_sys::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        cuda_sys::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        cuda_sys::CUDA_ERROR_JIT_COMPILATION_DISABLED,
        cuda_sys::CUDA_ERROR_INVALID_SOURCE,
        cuda_sys::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    ]
    .contains(&code)
}

/// Returns whether the text, after comments, begins with `.version`, as every PTX module does.
fn begins_as_ptx(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let behind = if let Some(line) = rest.strip_prefix("//") {
            line.split_once('\n')
        } else if let Some(block) = rest.strip_prefix("/*") {
            block.split_once("*/")
        } else {
            return rest.starts_with(".version");
        };
        match behind {
            Some((_, behind)) => rest = behind.trim_start(),
            None => return false,
        }
    }
}

impl Release for Loaded {
    const RESOURCE: Resource = Resource::Module;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    /// Waits for the kernels launched from the module, then unloads it.
    fn release(&mut self) -> Result<(), Failed> {
        self.users.wait()?;
        // SAFETY: the last reference is gone, so no code uses the handle after this call, no kernel
        // of the module runs or is queued, and nothing uses its globals; the module's context is
        // current.
        self.context.release("cuModuleUnload", || unsafe { cu::cuModuleUnload(self.raw.0) })?;
        self.outputs.free();
        Ok(())
    }
}

compare_by! { Module: |it| Arc::as_ptr(&it.0) }

debug_by! { [] Module: |it| "Module" { raw: it.as_raw(), context: it.context() } }

#[cfg(test)]
mod tests {
    use super::begins_as_ptx;

    #[test]
    fn ptx_begins_with_its_version() {
        assert!(begins_as_ptx(".version 7.0"));
        assert!(begins_as_ptx("\n  // a // b\n/* c\n .target */ .version 7.0\n"));
        for other in [
            "",
            " ",
            "\x7fELF\x02\x01\x01",
            "// .version",
            "/* .version 7.0",
            ".target sm_52",
            "int main;",
        ] {
            assert!(!begins_as_ptx(other), "{other:?}");
        }
    }
}
