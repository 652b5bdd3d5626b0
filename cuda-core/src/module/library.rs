//! Libraries: kernels loaded once for all contexts.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cuda_sys::{CUfunction, CUkernel, CUlibrary, symbol as cu};

use super::code::{ByName, Code, Users, find_once};
use super::function::{FoundFunction, LISTED};
use super::{Function, aligned, compiled, ptx_text, read_image};
use super::{JitOptions, Outputs, global};
use crate::context::{Context, kept};
use crate::error::{Rejected, Result, asked, c_string, check};
use crate::memory::DeviceBuffer;
use crate::module::nvrtc::Cubin;
use crate::process::{
    Failed, Handle, Owned, RelaxedCaptureMode, Release, deferred, driver, owned, released,
};
use crate::types::{Pod, Resource};
use crate::util::{compare_by, debug_by, lock};

/// Kernels and global variables that belong to no particular context: loaded once, and used in any
/// context of any device. From CUDA 12.0 on.
///
/// The driver decides where and when code is compiled and copied to a device: usually when a
/// context first uses it.
///
/// A handle: clones are the same library, and every [`Kernel`], [`Function`] and global taken from
/// it keeps it loaded. When the last clone, kernel, function and global is gone, the crate waits for
/// the kernels launched from the library to complete, then unloads it from all contexts.
///
/// ```no_run
/// use cuda_core::{Device, Library};
///
/// # let ptx = String::new();
/// let library = Library::from_ptx(&ptx)?;
/// let nothing = library.kernel("nothing")?;
/// for device in Device::all()? {
///     // SAFETY: the kernel has no parameter and touches nothing.
///     unsafe { device.create_stream()?.kernel(&nothing).block(32).launch() }?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Library(Arc<Owned<LoadedLibrary>>);

/// A loaded library; unloaded with its last handle.
pub(crate) struct LoadedLibrary {
    // INVARIANT: a loaded library, unloaded only by `release`.
    raw: Handle<CUlibrary>,
    pub(super) users: Users,
    kernels: ByName<FoundKernel>,
    outputs: Outputs,
}

/// The loaded libraries.
static LIBRARIES: Mutex<Vec<Weak<Owned<LoadedLibrary>>>> = Mutex::new(Vec::new());

/// See [`kept::LIBRARIES`].
fn forget_reached() {
    // Drops the references without the lock: the last one unloads a library.
    let all: Vec<_> = lock(&LIBRARIES).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|library| library.users.forget_reached());
}

impl LoadedLibrary {
    /// Returns the names of the first [`LISTED`] kernels, and the number of all: from CUDA 12.4 on.
    fn names(&self) -> Result<(Vec<String>, usize)> {
        let library = self.raw.0;
        let count = asked("cuLibraryGetKernelCount", 0, |count| {
            // SAFETY: the call writes one number, to an exclusive borrow; the library is loaded.
            unsafe { cu::cuLibraryGetKernelCount(count, library) }
        })?;
        let mut list = vec![ptr::null_mut(); LISTED.min(count as usize)];
        let (first, len) = (list.as_mut_ptr(), list.len() as u32);
        // SAFETY: the list has room for `len` kernels; the library is loaded.
        let code = unsafe { cu::cuLibraryEnumerateKernels(first, len, library) };
        check("cuLibraryEnumerateKernels", code)?;
        let name = |kernel: CUkernel| {
            let name = asked("cuKernelGetName", ptr::null(), |name| {
                // SAFETY: the call writes one address, to an exclusive borrow; the kernel belongs
                // to the loaded library.
                unsafe { cu::cuKernelGetName(name, kernel) }
            })?;
            // SAFETY: the driver's NUL-terminated string, which lives as long as the library.
            Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        };
        Ok((list.into_iter().map(name).collect::<Result<_>>()?, count as usize))
    }
}

impl Library {
    /// Loads PTX text, with the options of [`JitOptions::new`]: `cuLibraryLoadData`. Needs no
    /// context.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), before any driver call, for text that does not
    /// begin as PTX does or holds a NUL byte; [`ModuleError::Compile`](crate::ModuleError::Compile)
    /// if the driver compiles at once and fails; the driver's `CALL_REQUIRES_NEWER_DRIVER` (36)
    /// before CUDA 12.0.
    ///
    /// ```no_run
    /// use cuda_core::Library;
    ///
    /// let library = Library::from_ptx(".version 7.0 …")?;
    /// let kernel = library.kernel("scale")?; // for streams of every context
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLibraryLoadData", "cudaLibraryLoadData"))]
    pub fn from_ptx(ptx: impl AsRef<str>) -> Result<Self> {
        Self::from_ptx_with(ptx, &JitOptions::new())
    }

    /// Loads PTX text with the given options: `cuLibraryLoadData`.
    ///
    /// # Errors
    /// As [`Library::from_ptx`].
    ///
    /// ```no_run
    /// use cuda_core::{Library, jit::JitOptions};
    ///
    /// # const PTX: &str = "";
    /// let options = JitOptions::new().max_registers(32).verbose(true);
    /// let library = Library::from_ptx_with(PTX, &options)?;
    /// println!("{} (in {:?})", library.log(), library.wall_time());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLibraryLoadData", "cudaLibraryLoadData"))]
    pub fn from_ptx_with(ptx: impl AsRef<str>, options: &JitOptions) -> Result<Self> {
        let text = ptx_text("cuLibraryLoadData", ptx.as_ref())?;
        // SAFETY: PTX text, NUL-terminated, alive during the call.
        unsafe { Self::load(text.as_ptr().cast(), options) }
    }

    /// Loads a binary that NVRTC compiled: `cuLibraryLoadData`.
    ///
    /// # Errors
    /// As [`Library::from_ptx`].
    #[doc(alias("cuLibraryLoadData", "cudaLibraryLoadData"))]
    pub fn from_cubin(cubin: &Cubin) -> Result<Self> {
        // SAFETY: by the invariant of `Cubin`, a whole image written by NVIDIA's own compiler.
        unsafe { Self::from_image(cubin.as_bytes()) }
    }

    /// Loads a binary image, a cubin or a fatbin, with the options of [`JitOptions::new`]:
    /// `cuLibraryLoadData`.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile) for bytes that are not an image.
    ///
    /// # Safety
    /// As [`Module::from_image`](crate::Module::from_image).
    #[doc(alias("cuLibraryLoadData", "cudaLibraryLoadData"))]
    pub unsafe fn from_image(image: &[u8]) -> Result<Self> {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::from_image_with(image, &JitOptions::new()) }
    }

    /// Loads an image, with the given options for compiling its PTX: `cuLibraryLoadData`.
    ///
    /// # Errors
    /// As [`Library::from_image`].
    ///
    /// # Safety
    /// As [`Module::from_image`](crate::Module::from_image).
    #[doc(alias("cuLibraryLoadData", "cudaLibraryLoadData"))]
    pub unsafe fn from_image_with(image: &[u8], options: &JitOptions) -> Result<Self> {
        let image = aligned(image);
        // SAFETY: an image by the caller's promise, followed by at least one zero byte, alive
        // during the call.
        unsafe { Self::load(image.as_ptr().cast(), options) }
    }

    /// Loads an image from a file, as [`Library::from_image`] does from memory.
    ///
    /// # Errors
    /// [`ModuleError::File`](crate::ModuleError::File) if it cannot be read;
    /// [`ModuleError::Compile`](crate::ModuleError::Compile).
    ///
    /// # Safety
    /// As [`Module::from_image`](crate::Module::from_image).
    #[doc(alias("cuLibraryLoadFromFile", "cudaLibraryLoadFromFile"))]
    pub unsafe fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let image = read_image(path.as_ref())?;
        // SAFETY: the caller's promise is about the file's bytes, and these are they.
        unsafe { Self::from_image(&image) }
    }

    /// # Safety
    /// `image` is what `cuLibraryLoadData` accepts: NUL-terminated PTX text, or a whole binary
    /// image.
    unsafe fn load(image: *const c_void, options: &JitOptions) -> Result<Self> {
        let op = "cuLibraryLoadData";
        driver::ensure()?;
        let relaxed = RelaxedCaptureMode::enter()?;
        let mut raw = ptr::null_mut();
        let mut call = options.prepare();
        let (keys, values, count) = call.pairs();
        // SAFETY: the call writes one handle, to a local that outlives it; the image is valid by
        // the caller's promise, and the driver copies it, since no option says that it is
        // preserved; there are `count` keys, each with a value; keys, values and the buffers they
        // point to stay in place as long as the library; no library options are passed.
        let code = unsafe {
            cu::cuLibraryLoadData(
                &mut raw,
                image,
                keys,
                values,
                count,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        };
        drop(relaxed);
        Ok(Self::note(Arc::new(Owned::new(LoadedLibrary {
            raw: Handle(raw),
            users: Users::default(),
            kernels: ByName::default(),
            outputs: Outputs::of(op, code, call)?,
        }))))
    }

    /// Adds the library to [`LIBRARIES`].
    fn note(library: Arc<Owned<LoadedLibrary>>) -> Self {
        let _ = kept::LIBRARIES.set(forget_reached);
        let mut all = lock(&LIBRARIES);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&library));
        drop(all);
        Self(library)
    }

    /// The compiler's log from loading the library; empty if the driver compiles later. Otherwise
    /// as [`Module::log`](crate::Module::log).
    pub fn log(&self) -> &str {
        &self.0.outputs.log
    }

    /// The time that compiler and linker took while the library was loaded, as the driver reports
    /// it; zero if the driver compiles later, or had the result in its cache.
    pub fn wall_time(&self) -> Duration {
        self.0.outputs.wall_time
    }

    /// Returns the kernel with that name, which keeps the library loaded: `cuLibraryGetKernel`. The
    /// driver is asked once for each name.
    ///
    /// # Errors
    /// [`ModuleError::NotFound`](crate::ModuleError::NotFound);
    /// [`Error::Invalid`](crate::Error::Invalid) for a name with a NUL byte.
    #[doc(alias("cuLibraryGetKernel", "cudaLibraryGetKernel"))]
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let op = "cuLibraryGetKernel";
        let loaded = self.0.live()?;
        let found = find_once(&loaded.kernels, op, name, |symbol| {
            // SAFETY: the call writes one handle, to an exclusive borrow; the name is NUL-terminated
            // and read during the call only; the library is loaded.
            let asked = asked(op, ptr::null_mut(), |raw| unsafe {
                cu::cuLibraryGetKernel(raw, loaded.raw.0, symbol.as_ptr())
            });
            let raw = Handle(asked.map_err(|error| {
                error.naming_one_of(name, || loaded.names().unwrap_or_default())
            })?);
            Ok(FoundKernel { raw, name: name.to_owned(), functions: Mutex::default() })
        })?;
        Ok(Kernel { found, library: self.0.clone() })
    }

    /// Returns the global or constant variable with that name in a context, as a buffer over all of
    /// it: `cuLibraryGetGlobal`. Every context has its own copy. Otherwise as
    /// [`Module::global`](crate::Module::global).
    ///
    /// # Errors
    /// The errors of [`Module::global`](crate::Module::global);
    /// [`ModuleError::Compile`](crate::ModuleError::Compile).
    #[doc(alias("cuLibraryGetGlobal", "cudaLibraryGetGlobal"))]
    pub fn global<T: Pod>(&self, context: &Context, name: &str) -> Result<DeviceBuffer<T>> {
        let op = "cuLibraryGetGlobal";
        let symbol = c_string(op, name)?;
        let library = self.0.live()?.raw.0;
        let (mut address, mut bytes) = (0, 0);
        let code = context.relaxed(|| {
            // SAFETY: the call writes an address and a size, to two locals that outlive it; the
            // name is NUL-terminated and read during the call only; the library is loaded and a
            // live context is current.
            unsafe { cu::cuLibraryGetGlobal(&mut address, &mut bytes, library, symbol.as_ptr()) }
        })?;
        compiled(op, code, String::new()).map_err(|error| error.naming(name))?;
        global::buffer(
            "cuLibraryGetGlobal",
            Code::Library(self.0.clone()),
            context,
            (address, bytes),
            name,
        )
    }

    /// The driver's handle, valid while `self`, a clone, or anything taken from it lives; null for
    /// a library that was [given up](crate::Error::GivenUp).
    pub fn as_raw(&self) -> CUlibrary {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// If nothing else refers to the library, waits for the kernels launched from it, then unloads
    /// it: `cuLibraryUnload`. A drop does the same, and reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// A library with other clones, kernels or globals stays loaded until they are gone.
    ///
    /// # Errors
    /// The errors of the wait, which leave the library unchanged; the driver's error of the unload,
    /// after which the library is [given up](crate::Error::GivenUp).
    #[doc(alias("cuLibraryUnload", "cudaLibraryUnload"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        owned::close(self.0).map_err(|rejected| rejected.map(Self::note))
    }
}

impl Release for LoadedLibrary {
    const RESOURCE: Resource = Resource::Module;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    /// Waits for the kernels launched from the library, then unloads it.
    fn release(&mut self) -> Result<(), Failed> {
        deferred::hand_over();
        self.users.wait()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: the last reference is gone, so no code uses the handle after this call, no kernel of
        // the library runs or is queued, and nothing uses its globals.
        released("cuLibraryUnload", unsafe { cu::cuLibraryUnload(self.raw.0) })?;
        self.outputs.free();
        Ok(())
    }
}

compare_by! { Library: |it| Arc::as_ptr(&it.0) }

debug_by! { [] Library: |it| "Library"(it.as_raw()) }

/// A kernel of a [`Library`], not tied to a context: [`Stream::kernel`](crate::Stream::kernel)
/// launches it in the stream's context. From CUDA 12.0 on.
///
/// A handle: clones are the same kernel. It keeps its library loaded, but no context alive.
///
/// ```no_run
/// # const PTX: &str = "";
/// use cuda_core::{Device, Library};
///
/// let nothing = Library::from_ptx(PTX)?.kernel("nothing")?;
/// for device in Device::all()? {
///     let stream = device.create_stream()?;
///     // SAFETY: the kernel has no parameter and touches nothing.
///     unsafe { stream.kernel(&nothing).block(32).launch() }?;
///     println!("{:?}", nothing.function(stream.context())?.attributes()?);
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    // INVARIANT: a kernel of `library`, which stays loaded while this value exists.
    found: Arc<FoundKernel>,
    library: Arc<Owned<LoadedLibrary>>,
}

/// The driver's handle for a kernel and its functions; the library keeps it for the next look-up.
struct FoundKernel {
    // INVARIANT: valid while its library is loaded, which every `Kernel` ensures.
    raw: Handle<CUkernel>,
    name: String,
    // INVARIANT: functions of this kernel, each in the context with the identity beside it.
    functions: Mutex<Vec<(Weak<()>, Arc<FoundFunction>)>>,
}

impl FoundKernel {
    /// Returns the function in that context, if it was found already.
    fn known(&self, context: &Context) -> Option<Arc<FoundFunction>> {
        let (functions, identity) = (lock(&self.functions), Arc::as_ptr(context.identity()));
        let (_, found) = functions.iter().find(|(of, _)| of.as_ptr() == identity)?;
        Some(found.clone())
    }

    /// Keeps the function for the next look-up. Returns the one that was kept first.
    fn keep(&self, raw: CUfunction, context: &Context) -> Arc<FoundFunction> {
        let new = Arc::new(FoundFunction::new(raw, &self.name));
        let mut functions = lock(&self.functions);
        functions.retain(|(of, _)| of.strong_count() > 0);
        let identity = Arc::downgrade(context.identity());
        if let Some((_, first)) = functions.iter().find(|(of, _)| of.ptr_eq(&identity)) {
            return first.clone();
        }
        functions.push((identity, new.clone()));
        new
    }
}

impl Kernel {
    /// Returns the kernel's function in a context, for what needs one: attributes, occupancy, a
    /// kernel with typed parameters ([`kernel!`](crate::kernel!)). Asks the driver once for each
    /// context, which may load the code there: `cuKernelGetFunction`.
    ///
    /// The function keeps the context alive.
    ///
    /// # Errors
    /// [`ModuleError::Compile`](crate::ModuleError::Compile), without a log, if the library has no
    /// code for the context's device; the driver's.
    #[doc(alias("cuKernelGetFunction"))]
    pub fn function(&self, context: &Context) -> Result<Function> {
        let op = "cuKernelGetFunction";
        let code = Code::Library(self.library.clone());
        context.live()?;
        if let Some(found) = self.found.known(context) {
            return Ok(Function::of(found, context, code));
        }
        let mut raw = ptr::null_mut();
        let result = context.relaxed(|| {
            // SAFETY: the call writes one handle, to a local that outlives it; `self` keeps the
            // kernel's library loaded; a live context is current.
            unsafe { cu::cuKernelGetFunction(&mut raw, self.as_raw()) }
        })?;
        compiled(op, result, String::new())?;
        Ok(Function::of(self.found.keep(raw, context), context, code))
    }

    /// The name by which the kernel was looked up.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// The library that the kernel belongs to.
    pub fn library(&self) -> Library {
        Library(self.library.clone())
    }

    /// The driver's handle, valid while `self` or a clone lives. The library and the kernel's
    /// buffers do not know of launches made with the handle.
    pub fn as_raw(&self) -> CUkernel {
        self.found.raw.0
    }
}

compare_by! { Kernel: |it| (it.as_raw(), Arc::as_ptr(&it.library)) }

debug_by! { [] Kernel: |it| "Kernel"(it.name()) }
