//! Kernels of a module: their attributes and settings.

use std::ffi::CStr;
use std::ptr;
use std::sync::{Arc, OnceLock};

use cuda_sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MAX_DYNAMIC, CUfunc_cache, CUfunction,
    CUfunction_attribute, symbol as cu,
};

use super::Module;
use super::code::Code;
use crate::context::Context;
use crate::error::{LOAD, Result, asked, check};
use crate::module::launch::limits::LaunchLimits;
use crate::process::Handle;
use crate::timeline::Timeline;
use crate::util::{compare_by, debug_by, get_or_try_init};

/// A kernel's attribute, by CUDA's own name: `sys::CU_FUNC_ATTRIBUTE_NUM_REGS`.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let function = cuda_core::Module::from_ptx(&context, "")?.function("scale")?;
/// use cuda_core::{FunctionAttribute, sys};
///
/// let attribute: FunctionAttribute = sys::CU_FUNC_ATTRIBUTE_NUM_REGS;
/// println!("{} registers a thread", function.attribute(attribute)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type FunctionAttribute = CUfunction_attribute;

/// A kernel; launched with [`Stream::kernel`](crate::Stream::kernel).
///
/// A handle: clones are the same kernel. It keeps its module or library loaded.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// # let module = cuda_core::Module::from_ptx(&device.context()?, "")?;
/// let saxpy = module.function("saxpy")?;
/// let attributes = saxpy.attributes()?;
/// println!("{} registers a thread", attributes.registers);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias("CudaFunction", "CUfunction"))]
pub struct Function {
    // INVARIANT: a function of `code` in `context`; both stay alive while this value exists.
    found: Arc<FoundFunction>,
    context: Context,
    code: Code,
}

/// The driver's handle for a function and its limits; its module or its [`Kernel`](super::Kernel)
/// keeps it for the next look-up.
pub(super) struct FoundFunction {
    // INVARIANT: valid while its code is loaded and its context lives, which every `Function`
    // ensures.
    raw: Handle<CUfunction>,
    name: String,
    limits: OnceLock<LaunchLimits>,
}

/// The most names that the error for a missing name lists.
pub(super) const LISTED: usize = 8;

/// Attributes of a kernel: the `CU_FUNC_ATTRIBUTE_*` that every driver knows.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # const PTX: &str = "";
/// let function = cuda_core::Module::from_ptx(&context, PTX)?.function("scale")?;
/// let attributes = function.attributes()?;
/// assert_eq!(attributes.local, 0, "registers are spilled");
/// println!("{} registers a thread", attributes.registers);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// The most threads that a block of the kernel may have, given the registers it uses.
    pub max_threads_per_block: u32,
    /// Shared memory that the kernel declares, in bytes per block.
    pub static_shared: usize,
    /// Constant memory that the kernel declares, in bytes.
    pub constant: usize,
    /// Local memory, in bytes per thread: what did not fit into registers.
    pub local: usize,
    /// Registers per thread.
    pub registers: u32,
    /// PTX version that the kernel was compiled from, 70 for 7.0.
    pub ptx_version: u32,
    /// Compute capability that the kernel was compiled for, 90 for 9.0.
    pub binary_version: u32,
    /// Whether the kernel was compiled with the cache mode
    /// [`JitCache::All`](crate::jit::JitCache::All).
    pub caches_all: bool,
    /// Dynamic shared memory that a launch may request, in bytes per block.
    pub max_dynamic_shared: usize,
    /// The share of the L1 cache to use as shared memory, in percent; [`None`] if the driver
    /// chooses.
    pub preferred_carveout: Option<u32>,
}

impl FoundFunction {
    pub(super) fn new(raw: CUfunction, name: &str) -> Self {
        Self { raw: Handle(raw), name: name.to_owned(), limits: OnceLock::new() }
    }
}

/// Returns the name of a function: `cuFuncGetName`, from CUDA 12.3 on.
///
/// # Safety
/// The function is loaded in that context.
pub(crate) unsafe fn name_of(context: &Context, function: CUfunction) -> Result<String> {
    let name = context.ask("cuFuncGetName", ptr::null(), |name| {
        // SAFETY: the function is loaded by the caller's promise; the call writes one address, to
        // an exclusive borrow.
        unsafe { cu::cuFuncGetName(name, function) }
    })?;
    // SAFETY: the driver's NUL-terminated string, which lives as long as the function's code.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// # The function and its attributes
impl Function {
    /// Returns the function of `code` that was found in `context`.
    pub(super) fn of(found: Arc<FoundFunction>, context: &Context, code: Code) -> Self {
        Self { found, context: context.clone(), code }
    }

    /// The name by which the function was looked up.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// The module that the function belongs to; [`None`] for a kernel of a library.
    pub fn module(&self) -> Option<Module> {
        match &self.code {
            Code::Module(loaded) => Some(Module(loaded.clone())),
            Code::Library(_) => None,
        }
    }

    /// The context that the function was loaded into.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle, valid while `self` or a clone lives.
    ///
    /// The module and the buffers do not know of launches that other code makes with the handle.
    #[inline]
    pub fn as_raw(&self) -> CUfunction {
        self.found.raw.0
    }

    /// Notes that the function was launched.
    #[inline]
    pub(crate) fn launched(&self, stream: &Arc<Timeline>, seq: u64) {
        self.code.launched(stream, seq);
    }

    /// The limits that launches are checked against; queried from the driver once.
    #[inline]
    pub(crate) fn limits(&self) -> Result<&LaunchLimits> {
        get_or_try_init(&self.found.limits, || LaunchLimits::of(self))
    }

    /// Returns one attribute: `cuFuncGetAttribute`.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` for an attribute that it does not know.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let bytes = function.attribute(cuda_core::sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncGetAttribute", "cudaFuncGetAttributes"))]
    pub fn attribute(&self, attribute: FunctionAttribute) -> Result<i32> {
        let _entered = self.context().enter_briefly()?;
        self.attribute_entered(attribute)
    }

    /// [`Function::attribute`] with the context current.
    fn attribute_entered(&self, attribute: FunctionAttribute) -> Result<i32> {
        asked("cuFuncGetAttribute", 0, |value| {
            // SAFETY: the call writes one number, to an exclusive borrow; the function is loaded
            // while `self` is; an unknown attribute is an error.
            unsafe { cu::cuFuncGetAttribute(value, attribute, self.as_raw()) }
        })
    }

    /// Returns an attribute that is never negative. The context must be current.
    pub(super) fn number(&self, attribute: FunctionAttribute) -> Result<u32> {
        Ok(u32::try_from(self.attribute_entered(attribute)?).unwrap_or(0))
    }

    /// Sets one attribute: `cuFuncSetAttribute`.
    ///
    /// # Errors
    /// The driver's, for an attribute that cannot be set or a value that it cannot have.
    #[doc(alias("cuFuncSetAttribute", "cudaFuncSetAttribute"))]
    pub fn set_attribute(&self, attribute: FunctionAttribute, value: i32) -> Result<()> {
        // Queried first, so that its error means that nothing was set.
        let limits = if attribute == MAX_DYNAMIC { Some(self.limits()?) } else { None };
        self.context().ask("cuFuncSetAttribute", (), |()| {
            // SAFETY: the function is loaded while `self` is; an unknown attribute is an error.
            unsafe { cu::cuFuncSetAttribute(self.as_raw(), attribute, value) }
        })?;
        if let Some(limits) = limits {
            limits.note_max_dynamic(usize::try_from(value).unwrap_or(0));
        }
        Ok(())
    }

    /// Returns the kernel's attributes: `cuFuncGetAttribute`, ten times.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let attributes = function.attributes()?;
    /// println!("{} registers, {} bytes shared", attributes.registers, attributes.static_shared);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncGetAttribute", "cudaFuncGetAttributes"))]
    pub fn attributes(&self) -> Result<FunctionAttributes> {
        let _entered = self.context().enter_briefly()?;
        let number = |attribute| self.number(attribute);
        let bytes = |attribute| -> Result<usize> { Ok(number(attribute)? as usize) };
        let carveout =
            self.attribute_entered(cuda_sys::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?;
        Ok(FunctionAttributes {
            max_threads_per_block: number(cuda_sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: bytes(cuda_sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            constant: bytes(cuda_sys::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            local: bytes(cuda_sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            registers: number(cuda_sys::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            ptx_version: number(cuda_sys::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: number(cuda_sys::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            caches_all: number(cuda_sys::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)? != 0,
            max_dynamic_shared: bytes(MAX_DYNAMIC)?,
            preferred_carveout: u32::try_from(carveout).ok(),
        })
    }

    /// Lets launches request up to `bytes` of dynamic shared memory per block, which is required
    /// beyond 48 KiB: `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
    ///
    /// # Errors
    /// [`LaunchError::Limit`](crate::LaunchError::Limit) for more than the device has.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// let function = cuda_core::Module::from_ptx(&context, PTX)?.function("transpose")?;
    /// function.set_max_dynamic_shared(100 << 10)?; // once; more than 48 KiB need it
    /// let launch = stream.kernel(&function).grid(64).block(256).dynamic_shared(100 << 10);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncSetAttribute", "cudaFuncSetAttribute"))]
    pub fn set_max_dynamic_shared(&self, bytes: usize) -> Result<()> {
        let value = self.limits()?.check_dynamic(self, bytes)?;
        self.set_attribute(MAX_DYNAMIC, value)
    }

    /// Hints how much of the L1 cache to use as shared memory, in percent:
    /// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`. With [`None`] the driver chooses.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` above 100.
    #[doc(alias("cuFuncSetAttribute", "cudaFuncSetAttribute"))]
    pub fn set_preferred_carveout(&self, percent: Option<u32>) -> Result<()> {
        let value = percent.map_or(-1, |percent| i32::try_from(percent).unwrap_or(i32::MAX));
        self.set_attribute(cuda_sys::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value)
    }

    /// Hints how this kernel splits cache and shared memory, in place of the context's own hint:
    /// `cuFuncSetCacheConfig`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// function.set_cache_config(cuda_core::sys::CU_FUNC_CACHE_PREFER_L1)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncSetCacheConfig", "cudaFuncSetCacheConfig"))]
    pub fn set_cache_config(&self, config: CUfunc_cache) -> Result<()> {
        self.context().ask("cuFuncSetCacheConfig", (), |()| {
            // SAFETY: the function is loaded while `self` is; an unknown value is an error.
            unsafe { cu::cuFuncSetCacheConfig(self.as_raw(), config) }
        })
    }

    /// Returns the sizes of the kernel's parameters in bytes: `cuFuncGetParamInfo`; [`None`] before
    /// CUDA 12.4.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// if let Some(sizes) = function.parameters()? {
    ///     println!("{} parameters, {} bytes", sizes.len(), sizes.iter().sum::<usize>());
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncGetParamInfo"))]
    pub fn parameters(&self) -> Result<Option<Vec<usize>>> {
        let _entered = self.context().enter_briefly()?;
        self.parameters_entered()
    }

    /// [`Function::parameters`] with the context current.
    pub(super) fn parameters_entered(&self) -> Result<Option<Vec<usize>>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded while `self` is; the call writes two sizes, to locals
            // that outlive it.
            let code = unsafe {
                cu::cuFuncGetParamInfo(self.as_raw(), sizes.len(), &mut offset, &mut size)
            };
            match code {
                cuda_sys::CUDA_SUCCESS => sizes.push(size),
                cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER => return Ok(None),
                // "If the paramIndex is out of range, CUDA_ERROR_INVALID_VALUE is returned": there
                // is no other way to learn the number of parameters.
                cuda_sys::CUDA_ERROR_INVALID_VALUE => return Ok(Some(sizes)),
                code => return check("cuFuncGetParamInfo", code).map(|()| None),
            }
        }
    }

    /// Checks that the kernel was compiled with parameters of these sizes, in bytes, if the driver
    /// [reports](Function::parameters) them. Asks the driver once for each function; the function's
    /// launches do not ask again.
    ///
    /// # Errors
    /// [`LaunchError::ArgumentCount`](crate::LaunchError::ArgumentCount) and
    /// [`LaunchError::ArgumentSize`](crate::LaunchError::ArgumentSize); the driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let module = cuda_core::Module::from_ptx(stream.context(), "")?;
    /// let scale = module.function("scale")?; // scale(float *x, float by)
    /// scale.check_parameters(&[size_of::<u64>(), size_of::<f32>()])?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn check_parameters(&self, sizes: &[usize]) -> Result<()> {
        self.limits()?.check_arguments(LOAD, self, sizes.iter().copied())
    }
}

compare_by! { Function: |it| (it.as_raw(), std::ptr::from_ref(it.code.users())) }

debug_by! { [] Function: |it| "Function" { name: it.name(), raw: it.as_raw() } }
