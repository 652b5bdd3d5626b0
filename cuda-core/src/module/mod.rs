//! Modules: kernels and global variables loaded into a context.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cuda_sys::{CUmodule, symbol as cu};

use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, ModuleError, Rejected, Result, c_string, check};
use crate::module::nvrtc::Cubin;
use crate::process::handle::Handle;
use crate::process::owned::{self, Owned, Release};
use crate::process::release::FailedRelease;
use crate::types::resource::Resource;
use crate::util::by_parts::{compare_by, debug_by};

mod code;
mod function;
mod global;
mod jit;
pub mod kernel;
pub(crate) mod launch;
mod library;
mod linker;
pub mod nvrtc;
mod occupancy;

pub use function::{Function, FunctionAttribute, FunctionAttributes};
pub use jit::{JitCache, JitFallback, JitOptions};
pub use library::{Kernel, Library};
pub use linker::{LinkInput, Linker};
pub use occupancy::BlockSize;

use code::Users;
use function::FoundFunctions;
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
pub struct Module(Arc<Owned<Loaded>>);

/// A loaded module; unloaded with its last handle.
pub(crate) struct Loaded {
    // INVARIANT: a module loaded into `context`, unloaded only by `release`.
    raw: Handle<CUmodule>,
    context: Context,
    users: Users,
    functions: FoundFunctions,
    outputs: Outputs,
}

impl Module {
    /// Compiles PTX text for the context's device, with the options of [`JitOptions::new`]:
    /// `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] with the compiler's log; [`Error::Invalid`] for text that does not
    /// begin as PTX does or holds a NUL byte, before any driver call.
    ///
    /// ```no_run
    /// use cuda_core::{Device, Module};
    ///
    /// let context = Device::get(0)?.context()?;
    /// let ptx = std::fs::read_to_string("kernels.ptx").expect("nvcc --ptx kernels.cu");
    /// let module = Module::from_ptx(&context, ptx)?;
    /// let scale = module.function("scale")?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleLoadDataEx", "cuModuleLoadData"))]
    pub fn from_ptx(context: &Context, ptx: impl AsRef<str>) -> Result<Self> {
        Self::from_ptx_with(context, ptx, &JitOptions::new())
    }

    /// Compiles PTX text with the given options: `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// As [`Module::from_ptx`].
    ///
    /// ```no_run
    /// use cuda_core::{Module, jit::JitOptions};
    ///
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let ptx = String::new();
    /// let options = JitOptions::new().max_registers(32).line_info(true).verbose(true);
    /// let module = Module::from_ptx_with(&context, &ptx, &options)?;
    /// println!("{} (in {:?})", module.log(), module.wall_time());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleLoadDataEx"))]
    pub fn from_ptx_with(
        context: &Context,
        ptx: impl AsRef<str>,
        options: &JitOptions,
    ) -> Result<Self> {
        let text = ptx_text("cuModuleLoadDataEx", ptx.as_ref())?;
        // SAFETY: PTX text, NUL-terminated, alive during the call.
        unsafe { Self::load(context, text.as_ptr().cast(), options) }
    }

    /// Loads a binary that NVRTC compiled: `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] for a binary of another compute capability than the device's.
    ///
    /// ```no_run
    /// use cuda_core::{Device, Module, nvrtc::Program};
    ///
    /// let device = Device::get(0)?;
    /// let source = r#"extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }"#;
    /// let cubin = Program::new(source).device(device)?.compile_cubin()?;
    /// let module = Module::from_cubin(&device.context()?, &cubin)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleLoadDataEx", "cuModuleLoadData"))]
    pub fn from_cubin(context: &Context, cubin: &Cubin) -> Result<Self> {
        // SAFETY: by the invariant of `Cubin` a whole image, which NVIDIA's own compiler wrote.
        unsafe { Self::from_image(context, cubin.as_bytes()) }
    }

    /// Loads a binary image, a cubin or a fatbin, with the options of [`JitOptions::new`]:
    /// `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] if the image holds nothing for the context's device, or is none.
    ///
    /// # Safety
    /// `image` is a whole image, written by a compiler of NVIDIA's: the driver reads as far as the
    /// headers in it say. A NUL byte is appended, so PTX text is an image too.
    ///
    /// ```no_run
    /// use cuda_core::{Device, Module};
    ///
    /// let context = Device::get(0)?.context()?;
    /// let image = std::fs::read("kernels.cubin").expect("nvcc --cubin kernels.cu");
    /// // SAFETY: nvcc wrote the file.
    /// let module = unsafe { Module::from_image(&context, &image) }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleLoadDataEx", "cuModuleLoadData"))]
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::from_image_with(context, image, &JitOptions::new()) }
    }

    /// Loads an image, with the given options for compiling its PTX: `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// As [`Module::from_image`].
    ///
    /// # Safety
    /// As [`Module::from_image`].
    #[doc(alias("cuModuleLoadDataEx"))]
    pub unsafe fn from_image_with(
        context: &Context,
        image: &[u8],
        options: &JitOptions,
    ) -> Result<Self> {
        let image = aligned(image);
        // SAFETY: an image by the caller's promise, followed by at least one zero byte, alive
        // during the call.
        unsafe { Self::load(context, image.as_ptr().cast(), options) }
    }

    /// Loads an image from a file: [`Module::from_image`] of its contents.
    ///
    /// # Errors
    /// [`ModuleError::File`] if it cannot be read; [`ModuleError::Compile`].
    ///
    /// # Safety
    /// As [`Module::from_image`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::Module;
    ///
    /// // SAFETY: nvcc wrote the file.
    /// let module = unsafe { Module::from_file(&context, "kernels.fatbin") }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleLoad"))]
    pub unsafe fn from_file(context: &Context, path: impl AsRef<Path>) -> Result<Self> {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::from_file_with(context, path, &JitOptions::new()) }
    }

    /// Loads an image from a file: [`Module::from_image_with`] of its contents.
    ///
    /// # Errors
    /// As [`Module::from_file`].
    ///
    /// # Safety
    /// As [`Module::from_image`].
    pub unsafe fn from_file_with(
        context: &Context,
        path: impl AsRef<Path>,
        options: &JitOptions,
    ) -> Result<Self> {
        let image = read_image(path.as_ref())?;
        // SAFETY: these are the file's bytes, for which the caller promised what is required.
        unsafe { Self::from_image_with(context, &image, options) }
    }

    /// # Safety
    /// `image` is what `cuModuleLoadDataEx` accepts: NUL-terminated PTX text, or a whole binary
    /// image.
    unsafe fn load(context: &Context, image: *const c_void, options: &JitOptions) -> Result<Self> {
        let op = "cuModuleLoadDataEx";
        let mut raw = std::ptr::null_mut();
        let mut call = options.prepare();
        let (keys, values, count) = call.pairs();
        let code = context.relaxed(|| {
            // SAFETY: the call writes one handle, to a local that outlives it; the image is the
            // caller's promise; there are `count` keys with a value each, which stay where they are
            // for as long as the module, with the buffers among them; a live context is current.
            unsafe { cu::cuModuleLoadDataEx(&mut raw, image, count, keys, values) }
        })?;
        Ok(Self(Arc::new(Owned::new(Loaded {
            raw: Handle(raw),
            context: context.clone(),
            users: Users::default(),
            functions: FoundFunctions::default(),
            outputs: Outputs::of(op, code, call)?,
        }))))
    }

    /// The kernel with that name: `cuModuleGetFunction`. It keeps the module loaded.
    ///
    /// The module remembers it, with what its launches are checked against: asking for a name again
    /// makes no driver call.
    ///
    /// # Errors
    /// [`ModuleError::NotFound`]; [`Error::Invalid`] for a name with a NUL byte.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = "";
    /// let module = cuda_core::Module::from_ptx(&context, PTX)?;
    /// let function = module.function("scale")?;
    /// drop(module); // the function keeps it loaded
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleGetFunction"))]
    pub fn function(&self, name: &str) -> Result<Function> {
        Function::find(&self.0, name)
    }

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

    /// The context that the module was loaded into.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The device that the module was loaded for.
    pub fn device(&self) -> Device {
        self.0.context.device()
    }

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
/// byte behind it.
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
        self.context.release("cuModuleUnload", || {
            // SAFETY: the last reference is gone, so no code uses the handle after this call, no kernel
            // of the module runs or is queued, and nothing uses its globals; the module's context is
            // current.
            unsafe { cu::cuModuleUnload(self.raw.0) }
        })?;
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
