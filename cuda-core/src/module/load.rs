//! Modules from PTX and images, and their functions.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use cuda_sys::symbol as cu;

use crate::context::Context;
use crate::error::{Result, asked, check};
use crate::module::code::{ByName, Code, Users, find_once};
use crate::module::function::{FoundFunction, LISTED, name_of};
use crate::module::nvrtc::Cubin;
use crate::module::{Function, JitOptions, Loaded, Module, Outputs, aligned, ptx_text, read_image};
use crate::process::{Handle, Owned};

/// # Loading, and the kernels
impl Module {
    /// Compiles PTX text for the context's device, with the options of [`JitOptions::new`]:
    /// `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) with the compiler's log;
    /// [`Error::Invalid`](crate::Error::Invalid) for text that does not begin as PTX does or holds
    /// a NUL byte, before any driver call.
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
    #[doc(alias("cuModuleLoadDataEx", "cuModuleLoadData", "load_module"))]
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

    /// Loads a binary that NVRTC compiled: `cuModuleLoadDataEx`. [`Module::from_image`] and
    /// [`Module::from_file`] load a `.cubin` file of nvcc.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) for a binary of another compute
    /// capability than the device's.
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
        // SAFETY: by the invariant of `Cubin`, a whole image written by NVIDIA's own compiler.
        unsafe { Self::from_image(context, cubin.as_bytes()) }
    }

    /// Loads a binary image, a cubin or a fatbin, with the options of [`JitOptions::new`]:
    /// `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) if the bytes are not an image, or hold
    /// no code for the context's device.
    ///
    /// # Safety
    /// `image` is a whole image, written by one of NVIDIA's compilers: the driver reads as far as
    /// the headers in it say. A NUL byte is appended, so PTX text is an image too.
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

    /// Loads an image from a file, as [`Module::from_image`] does from memory. For a PTX file use
    /// [`Module::from_ptx`] with [`std::fs::read_to_string`], which needs no `unsafe`; for options,
    /// [`Module::from_image_with`] with [`std::fs::read`].
    ///
    /// # Errors
    /// [`ModuleError::File`](crate::ModuleError::File) if it cannot be read;
    /// [`ModuleError::Compile`](crate::ModuleError::Compile).
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
        let image = read_image(path.as_ref())?;
        // SAFETY: the caller's promise is about the file's bytes, and these are they.
        unsafe { Self::from_image(context, &image) }
    }

    /// Returns the kernel with that name, which keeps the module loaded: `cuModuleGetFunction`.
    ///
    /// The module remembers the function and its launch limits: asking for the same name again
    /// makes no driver call.
    ///
    /// # Errors
    /// [`ModuleError::NotFound`](crate::ModuleError::NotFound);
    /// [`Error::Invalid`](crate::Error::Invalid) for a name with a NUL byte.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = "";
    /// let module = cuda_core::Module::from_ptx(&context, PTX)?;
    /// let function = module.function("scale")?;
    /// drop(module); // the function keeps it loaded
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleGetFunction", "load_function"))]
    pub fn function(&self, name: &str) -> Result<Function> {
        let op = "cuModuleGetFunction";
        let loaded = self.0.live()?;
        let found = find_once(&loaded.functions, op, name, |symbol| {
            let asked = loaded.context.ask(op, ptr::null_mut(), |raw| {
                // SAFETY: the call writes one handle, to an exclusive borrow; the name is
                // NUL-terminated and read during the call only; the module is loaded, and its context
                // is current.
                unsafe { cu::cuModuleGetFunction(raw, loaded.raw.0, symbol.as_ptr()) }
            });
            let names = || loaded.names(LISTED).unwrap_or_default();
            let raw = asked.map_err(|error| error.naming_one_of(name, names))?;
            Ok(FoundFunction::new(raw, name))
        })?;
        Ok(Function::of(found, &loaded.context, Code::Module(self.0.clone())))
    }

    /// Returns all kernels of the module, each with its [name](Function::name), in no particular
    /// order: `cuModuleGetFunctionCount`, `cuModuleEnumerateFunctions`; then, for each kernel,
    /// `cuFuncGetName` and what [`Module::function`] calls. From CUDA 12.4 on.
    ///
    /// # Errors
    /// The driver's: `CALL_REQUIRES_NEWER_DRIVER` (36) before CUDA 12.4.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = "";
    /// let module = cuda_core::Module::from_ptx(&context, PTX)?;
    /// for function in module.functions()? {
    ///     println!("{}: {} registers a thread", function.name(), function.attributes()?.registers);
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleEnumerateFunctions", "cuModuleGetFunctionCount", "cuFuncGetName"))]
    pub fn functions(&self) -> Result<Vec<Function>> {
        let (names, _) = self.0.live()?.names(usize::MAX)?;
        // Looks each up, which loads it; enumerating does not.
        names.iter().map(|name| self.function(name)).collect()
    }

    /// # Safety
    /// `image` is what `cuModuleLoadDataEx` accepts: NUL-terminated PTX text, or a whole binary
    /// image.
    unsafe fn load(context: &Context, image: *const c_void, options: &JitOptions) -> Result<Self> {
        let op = "cuModuleLoadDataEx";
        let mut raw = ptr::null_mut();
        let mut call = options.prepare();
        let (keys, values, count) = call.pairs();
        let code = context.relaxed(|| {
            // SAFETY: the call writes one handle, to a local that outlives it; the image is valid
            // by the caller's promise; there are `count` keys, each with a value; keys, values and
            // the buffers they point to stay in place as long as the module; a live context is
            // current.
            unsafe { cu::cuModuleLoadDataEx(&mut raw, image, count, keys, values) }
        })?;
        Ok(Self(Arc::new(Owned::new(Loaded {
            raw: Handle(raw),
            context: context.clone(),
            users: Users::default(),
            functions: ByName::default(),
            outputs: Outputs::of(op, code, call)?,
        }))))
    }
}

impl Loaded {
    /// Returns the names of the first `most` functions, and the number of all: from CUDA 12.4 on.
    fn names(&self, most: usize) -> Result<(Vec<String>, usize)> {
        let _entered = self.context.enter_briefly()?;
        let count: u32 = asked("cuModuleGetFunctionCount", 0, |count| {
            // SAFETY: the call writes one number, to an exclusive borrow; the module is loaded.
            unsafe { cu::cuModuleGetFunctionCount(count, self.raw.0) }
        })?;
        let mut list = vec![ptr::null_mut(); most.min(count as usize)];
        let (first, len) = (list.as_mut_ptr(), list.len() as u32);
        // SAFETY: the list has room for `len` functions; the module is loaded.
        let code = unsafe { cu::cuModuleEnumerateFunctions(first, len, self.raw.0) };
        check("cuModuleEnumerateFunctions", code)?;
        // SAFETY: each is a function of the loaded module.
        let names = list.into_iter().map(|raw| unsafe { name_of(&self.context, raw) });
        Ok((names.collect::<Result<_>>()?, count as usize))
    }
}
