//! Linking device code from several inputs.

use std::ffi::CString;
use std::path::Path;
use std::ptr;

use cuda_sys::{CUjitInputType, CUlinkState, CUresult, symbol as cu};

use super::{JitOptions, Outputs, aligned, compiled, ptx_text, read_image};
use crate::context::Context;
use crate::error::{Error, Rejected, Result, c_string};
use crate::module::nvrtc::Cubin;
use crate::process::{Failed, Handle, Owned, Release};
use crate::types::Resource;
use crate::util::{debug_by, raw_enum};

raw_enum! {
    /// The kind of an image given to a [`Linker`]. PTX text has a method of its own,
    /// [`Linker::add_ptx`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::jit::{LinkInput, Linker};
    ///
    /// let mut linker = Linker::new(&context)?;
    /// // SAFETY: nvcc wrote the archive.
    /// unsafe { linker.add_file(LinkInput::Library, "libcudadevrt.a") }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    LinkInput: CUjitInputType {
        /// Code for devices of one architecture: `CU_JIT_INPUT_CUBIN`.
        Cubin = CU_JIT_INPUT_CUBIN,
        /// Code for several architectures, and PTX: `CU_JIT_INPUT_FATBINARY`.
        Fatbin = CU_JIT_INPUT_FATBINARY,
        /// An object file of the host with device code in it: `CU_JIT_INPUT_OBJECT`.
        Object = CU_JIT_INPUT_OBJECT,
        /// An archive of such files: `CU_JIT_INPUT_LIBRARY`.
        Library = CU_JIT_INPUT_LIBRARY,
    }
}

/// Links PTX texts and binaries that use each other's functions and variables into one binary.
///
/// Binaries must have been compiled as relocatable device code: `nvcc -rdc=true`,
/// [`Program::option`](crate::nvrtc::Program::option)`("-rdc=true")`. The log names the inputs
/// `input 1`, `input 2` and so on in the order of their addition, and files by their path.
///
/// CUDA does not say what is linked after the driver has refused an input: then start over with a
/// new linker.
///
/// ```no_run
/// use cuda_core::{Device, Module, jit::Linker};
///
/// # const KERNEL: &str = "";
/// # const FUNCTIONS: &str = "";
/// let context = Device::get(0)?.context()?;
/// let mut linker = Linker::new(&context)?;
/// linker.add_ptx(KERNEL)?.add_ptx(FUNCTIONS)?; // KERNEL declares `.extern .func` of the other
/// let module = Module::from_cubin(&context, &linker.complete()?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Linker {
    state: Owned<LinkState>,
    /// The number of inputs that were added, including refused ones.
    inputs: usize,
    /// Bytes of the error log that earlier errors have already reported.
    reported: usize,
}

struct LinkState {
    // INVARIANT: a link state created in `context`, destroyed only by `release`. Every call that uses
    // it borrows the linker exclusively.
    raw: Handle<CUlinkState>,
    context: Context,
    // INVARIANT: the buffers that the state was created with; the driver writes to them until the
    // state is destroyed.
    outputs: Outputs,
}

impl Linker {
    /// Creates a linker for the context's device, with the options of [`JitOptions::new`]:
    /// `cuLinkCreate_v2`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuLinkCreate"))]
    pub fn new(context: &Context) -> Result<Self> {
        Self::new_with(context, &JitOptions::new())
    }

    /// Creates a linker with the given options, which also apply to compiling PTX:
    /// `cuLinkCreate_v2`.
    ///
    /// # Errors
    /// As [`Linker::new`]; the driver's, for options that exclude each other.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = "";
    /// use cuda_core::jit::{JitOptions, Linker};
    ///
    /// let options = JitOptions::new().max_registers(32).verbose(true);
    /// let mut linker = Linker::new_with(&context, &options)?;
    /// linker.add_ptx(PTX)?;
    /// println!("{}", linker.complete()?.log());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLinkCreate"))]
    pub fn new_with(context: &Context, options: &JitOptions) -> Result<Self> {
        let op = "cuLinkCreate";
        let mut raw = ptr::null_mut();
        let mut call = options.prepare();
        let (keys, values, count) = call.pairs();
        let code = context.relaxed(|| {
            // SAFETY: the call writes one handle, to a local that outlives it; there are `count`
            // keys, each with a value; keys, values and the buffers they point to stay in place as
            // long as the state; a live context is current.
            unsafe { cu::cuLinkCreate_v2(count, keys, values, &mut raw) }
        })?;
        let outputs = Outputs::of(op, code, call)?;
        let state = LinkState { raw: Handle(raw), context: context.clone(), outputs };
        Ok(Self { state: Owned::new(state), inputs: 0, reported: 0 })
    }

    /// Compiles PTX text and adds it: `cuLinkAddData_v2`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) with the compiler's log;
    /// [`Error::Invalid`] for text that does not begin as PTX does or holds a NUL byte, before any
    /// driver call.
    #[doc(alias("cuLinkAddData"))]
    pub fn add_ptx(&mut self, ptx: impl AsRef<str>) -> Result<&mut Self> {
        let text = ptx_text("cuLinkAddData", ptx.as_ref())?;
        let name = self.next_name();
        // SAFETY: PTX text, with its NUL.
        unsafe { self.add(cuda_sys::CU_JIT_INPUT_PTX, text.as_bytes_with_nul(), name) }
    }

    /// Adds a binary that NVRTC compiled: `cuLinkAddData_v2`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile), for example for a binary of another
    /// architecture.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::nvrtc::Program;
    /// use cuda_core::{Module, jit::Linker};
    ///
    /// let part = |text: &str| {
    ///     let program = Program::new(text).option("--relocatable-device-code=true");
    ///     program.device(context.device())?.compile_cubin()
    /// };
    /// let mut linker = Linker::new(&context)?;
    /// linker.add_cubin(&part("__device__ int twice(int x) { return 2 * x; }")?)?;
    /// linker.add_cubin(&part("__device__ int twice(int); __global__ void f(int *x) { *x = twice(*x); }")?)?;
    /// let module = Module::from_cubin(&context, &linker.complete()?)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLinkAddData"))]
    pub fn add_cubin(&mut self, cubin: &Cubin) -> Result<&mut Self> {
        // SAFETY: by the invariant of `Cubin`, a whole image written by NVIDIA's own compiler.
        unsafe { self.add_image(LinkInput::Cubin, cubin.as_bytes()) }
    }

    /// Adds an image: `cuLinkAddData_v2`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes, before any driver call;
    /// [`ModuleError::Compile`](crate::ModuleError::Compile).
    ///
    /// # Safety
    /// `image` is a whole image of that kind, written by one of NVIDIA's compilers: the driver
    /// reads as far as the headers in it say.
    #[doc(alias("cuLinkAddData"))]
    pub unsafe fn add_image(&mut self, kind: LinkInput, image: &[u8]) -> Result<&mut Self> {
        let name = self.next_name();
        // SAFETY: the caller's promise is the same.
        unsafe { self.add(kind.as_raw(), image, name) }
    }

    /// Adds an image from a file, as [`Linker::add_image`] does from memory. Unlike
    /// `cuLinkAddFile_v2`, it returns an error that says what is wrong with the file.
    ///
    /// # Errors
    /// [`ModuleError::File`](crate::ModuleError::File) if the file cannot be read; the errors of
    /// [`Linker::add_image`].
    ///
    /// # Safety
    /// As [`Linker::add_image`].
    #[doc(alias("cuLinkAddFile"))]
    pub unsafe fn add_file(
        &mut self,
        kind: LinkInput,
        path: impl AsRef<Path>,
    ) -> Result<&mut Self> {
        let path = path.as_ref();
        let image = read_image(path)?;
        let name = c_string("cuLinkAddData", path)?;
        // SAFETY: the caller's promise is about the file's bytes, and these are they.
        unsafe { self.add(kind.as_raw(), &image, name) }
    }

    fn next_name(&self) -> CString {
        CString::new(format!("input {}", self.inputs + 1)).unwrap_or_default()
    }

    /// # Safety
    /// `data` is of that kind, as `cuLinkAddData` accepts it.
    unsafe fn add(
        &mut self,
        kind: CUjitInputType,
        data: &[u8],
        name: CString,
    ) -> Result<&mut Self> {
        let op = "cuLinkAddData";
        Error::unless(!data.is_empty(), op, "no bytes were given")?;
        self.inputs += 1;
        let (mut copy, none) = (aligned(data), ptr::null_mut());
        let (first, label) = (copy.as_mut_ptr().cast(), name.as_ptr());
        self.call(op, |raw| {
            // SAFETY: the call only reads the data, of `data`'s length, and the NUL-terminated
            // name; both live during the call, which suffices: "no reference is retained to any
            // inputs after this call returns"; there are no options; the state exists, and
            // its context is current.
            unsafe {
                cu::cuLinkAddData_v2(raw, kind, first, data.len(), label, 0, none, none.cast())
            }
        })?;
        Ok(self)
    }

    /// Makes one call with the state, whose context is current during the call.
    fn call(&mut self, op: &'static str, f: impl FnOnce(CUlinkState) -> CUresult) -> Result<()> {
        self.state.live()?;
        let code = self.state.context.relaxed(|| f(self.state.raw.0))?;
        // The logs grow with every call: the part logged for earlier inputs is not about this one.
        let errors = self.state.outputs.outcome().errors;
        let earlier = std::mem::replace(&mut self.reported, errors.len());
        let new = errors.get(earlier..).unwrap_or(&errors).trim().to_owned();
        compiled(op, code, new)
    }

    /// Links the inputs, and returns the binary with the compiler's and the linker's log:
    /// `cuLinkComplete`, `cuLinkDestroy`.
    ///
    /// The binary is a copy: [`Module::from_cubin`](crate::Module::from_cubin) and
    /// `Library::from_cubin` load it, here or in other contexts of the same architecture.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nothing was added, before any driver call;
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) with the linker's log, for example for
    /// functions that are undefined or defined twice. A failure to destroy the linker is reported
    /// to the hook of [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = ".version 7.0 .target sm_70 .address_size 64 .visible .entry scale() { ret; }";
    /// use cuda_core::{Device, Module, jit::Linker};
    ///
    /// let mut linker = Linker::new(&context)?;
    /// linker.add_ptx(PTX)?;
    /// let cubin = linker.complete()?;
    /// println!("{}", cubin.log());
    /// for device in Device::all()? {
    ///     let module = Module::from_cubin(&device.context()?, &cubin)?; // of the same architecture
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLinkComplete", "cuLinkDestroy"))]
    pub fn complete(mut self) -> Result<Cubin> {
        let op = "cuLinkComplete";
        Error::unless(self.inputs != 0, op, "no inputs were given")?;
        let (mut image, mut bytes) = (ptr::null_mut(), 0);
        self.call(op, |raw| {
            // SAFETY: the call writes an address and a size, to two locals that outlive it; the state
            // exists, and its context is current.
            match unsafe { cu::cuLinkComplete(raw, &mut image, &mut bytes) } {
                cuda_sys::CUDA_SUCCESS if image.is_null() || bytes == 0 => {
                    cuda_sys::CUDA_ERROR_INVALID_IMAGE
                }
                code => code,
            }
        })?;
        // SAFETY: not null, so the address of an image of that many bytes; "the cubin is owned by
        // the state", which is destroyed when `self` is dropped, and is not used for anything else
        // until then.
        let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
        Ok(Cubin::linked(image.to_vec(), self.state.outputs.outcome().info))
    }

    /// The context that the linker links for.
    pub fn context(&self) -> &Context {
        &self.state.context
    }

    /// The driver's handle, valid while `self` lives; null for a linker that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUlinkState {
        self.state.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// Destroys the linker without linking: `cuLinkDestroy`. A drop does the same, and reports a
    /// failure to the hook of [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// The driver's. If destroying failed, the returned linker is [given up](Error::GivenUp).
    #[doc(alias("cuLinkDestroy"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.state.release().map_err(|error| Rejected::new(error, self))
    }
}

impl Release for LinkState {
    const RESOURCE: Resource = Resource::Linker;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    fn release(&mut self) -> Result<(), Failed> {
        // SAFETY: the linker is being closed or dropped, so no code uses the handle after this
        // call; the state's context is current.
        self.context.release("cuLinkDestroy", || unsafe { cu::cuLinkDestroy(self.raw.0) })?;
        // The driver no longer writes its logs there.
        self.outputs.free();
        Ok(())
    }
}

debug_by! { [] Linker: |it| "Linker" { raw: it.as_raw(), context: it.context() } }
