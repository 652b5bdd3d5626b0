//! Modules: kernels and global variables loaded into a context.

use std::ffi::CString;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cuda_sys::{CUmodule, symbol as cu};

use crate::context::{Context, of_context};
use crate::error::{Error, ModuleError, Rejected, Result, c_string, check};
use crate::process::{FailedRelease, Handle, Owned, Release, owned};
use crate::types::Resource;
use crate::util::{compare_by, debug_by};

// Apart from each other, so that rustfmt leaves this order, in which rustdoc shows their `impl`s.
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
/// A handle: clones are the same module, and everything that was taken from it keeps it loaded.
/// When the last [`Function`], global and clone is gone, the module is unloaded; that waits until
/// the kernels launched from it have completed.
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
    /// The compiler's log. Empty unless the compiler was asked to be [verbose](JitOptions::verbose)
    /// or had warnings, and if the driver used the cached result of an earlier compilation.
    pub fn log(&self) -> &str {
        &self.0.outputs.log
    }

    /// How long the compiler and linker took, as the driver reports; zero for a module that was in
    /// the driver's cache.
    pub fn wall_time(&self) -> Duration {
        self.0.outputs.wall_time
    }

    of_context! { "The context that the module was loaded into.": |it| &it.0.context }

    /// The driver's handle, valid while `self`, a clone, or anything taken from it lives; null for
    /// a module that was [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUmodule {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// Unloads the module, if nothing else refers to it, once the kernels launched from it have
    /// completed: `cuModuleUnload`. Dropping it reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// A module that has clones, functions or globals lives on with them.
    ///
    /// # Errors
    /// Those of the wait for those kernels, with the module unchanged; the driver's of the call
    /// that unloads it, with a module that is [given up](Error::GivenUp).
    #[doc(alias("cuModuleUnload"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        owned::close(self.0).map_err(|rejected| rejected.map(Self))
    }
}

/// PTX text as a C string for the driver.
fn ptx_text(op: &'static str, ptx: &str) -> Result<CString> {
    // The driver distinguishes texts from binaries by their first bytes, and reads a binary as far
    // as its headers say. So text that could pass for a binary must not reach it.
    Error::unless(begins_as_ptx(ptx), op, "this is no PTX: it does not begin with .version")?;
    c_string(op, ptx)
}

/// A copy of the image, aligned as required for the headers of an ELF file, with at least one zero
/// byte after it.
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

/// A result about the image is [`ModuleError::Compile`] with the log; any other error stays as it
/// is.
fn compiled(op: &'static str, code: cuda_sys::CUresult, log: String) -> Result<()> {
    match check(op, code) {
        Err(_) if !log.is_empty() || is_about_the_image(code) => {
            Err(ModuleError::Compile { op, code, log }.into())
        }
        result => result,
    }
}

/// Whether the code means that the driver could not use the image.
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

/// Whether the text begins, comments aside, with the `.version` that every PTX module begins with.
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

    /// Waits for the kernels that were launched, then unloads.
    fn release(&mut self) -> Result<(), FailedRelease> {
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
