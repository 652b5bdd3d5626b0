//! NVRTC: CUDA C++ compiled while the program runs.
//!
//! The library, `libnvrtc.so.13`, `.12`, `.11.2` or without a number (`nvrtc64_*.dll` on Windows), comes with the
//! CUDA toolkit or as a package of its own, not with the driver. The first call searches for it by
//! the system's loader, then below `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`. On Windows it
//! searches below the first two, in `PATH`, and in the directories of the program and the system.
//! The environment variable `CUDA_CORE_NVRTC` names a library to use instead. A set-uid program
//! ignores all these variables, and finds only what the loader does. Compiling needs neither a
//! driver nor a device.
//!
//! ```no_run
//! use cuda_core::{Device, Module, nvrtc};
//!
//! let stream = Device::get(0)?.create_stream()?;
//! let ptx = nvrtc::compile(r#"extern "C" __global__ void add_one(float *x) { x[threadIdx.x] += 1; }"#)?;
//! let add_one = Module::from_ptx(stream.context(), &ptx)?.function("add_one")?;
//! let mut x = stream.alloc_zeroed::<f32>(32)?;
//! // SAFETY: `x` has an element for each of the 32 threads.
//! unsafe { stream.kernel(&add_one).block(32).arg(&mut x).launch() }?;
//! let mut back = [0.0; 32];
//! stream.download(&x, &mut back)?;
//! assert_eq!(back, [1.0; 32]);
//! # Ok::<(), cuda_core::Error>(())
//! ```

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::fmt;
use std::path::Path;
use std::ptr;

use crate::device::Device;
use crate::error::{Error, Nvrtc, Result, c_string, c_text};
use crate::types::Version;

mod api;
mod options;
mod output;
mod program;

pub use output::{Cubin, Ptx};

use api::{Api, api};
use output::Output;
use program::CreatedProgram;

/// Compiles a program to PTX for the oldest devices that NVRTC supports; the driver then compiles
/// the PTX for the actual device. [`Program`] has options.
///
/// # Errors
/// As [`Program::compile`].
///
/// ```no_run
/// let error = cuda_core::nvrtc::compile("__global__ void f() { oops }").unwrap_err();
/// assert!(error.to_string().contains("oops"));
/// ```
#[doc(alias("nvrtcCompileProgram"))]
#[doc(alias("compile_ptx"))]
pub fn compile(source: &str) -> Result<Ptx> {
    Program::new(source).compile()
}

/// Returns NVRTC's version, which is that of its toolkit: `nvrtcVersion`.
///
/// # Errors
/// [`Error::NoNvrtc`]; [`Error::Nvrtc`] if NVRTC fails.
///
/// ```no_run
/// use cuda_core::{Version, driver_version, nvrtc};
///
/// if nvrtc::version()? > driver_version()? {
///     println!("the driver may not know the PTX that this NVRTC writes");
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("nvrtcVersion"))]
pub fn version() -> Result<Version> {
    let api = api()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: "nvrtcResult nvrtcVersion(int *, int *)" writes two ints, to locals that outlive the
    // call.
    api.check("nvrtcVersion", unsafe { (api.version)(&mut major, &mut minor) })?;
    // NVRTC returns no negative version.
    Ok(Version::new(major as u32, minor as u32))
}

/// Returns the compute capabilities that NVRTC compiles for, ascending, 90 for 9.0:
/// `nvrtcGetSupportedArchs`.
///
/// # Errors
/// [`Error::NoNvrtc`]; [`Error::Nvrtc`] if NVRTC fails.
#[doc(alias("nvrtcGetSupportedArchs"))]
pub fn supported_architectures() -> Result<Vec<u32>> {
    let api = api()?;
    let mut count = 0;
    // SAFETY: the function writes one int, to a local that outlives the call.
    api.check("nvrtcGetNumSupportedArchs", unsafe { (api.num_supported_archs)(&mut count) })?;
    let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many numbers as NVRTC reported.
    api.check("nvrtcGetSupportedArchs", unsafe {
        (api.supported_archs)(architectures.as_mut_ptr())
    })?;
    let known = architectures.into_iter();
    Ok(known.filter_map(|arch| u32::try_from(arch).ok()).collect())
}

/// CUDA C++ source to be compiled, with options.
///
/// ```no_run
/// use cuda_core::nvrtc::Program;
///
/// # let device = cuda_core::Device::get(0)?;
/// let ptx = Program::new("#include \"scale.h\"\ntemplate <class T> __global__ void scale(T *x) { *x *= FACTOR; }")
///     .name("scale.cu")
///     .device(device)?
///     .header("scale.h", "#define FACTOR 2\n")
///     .option("--std=c++17")
///     .name_expression("scale<float>")
///     .compile()?;
/// let mangled = ptx.lowered_name("scale<float>").expect("asked for");
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Program {
    source: String,
    name: String,
    headers: Vec<(String, String)>,
    /// An option with a path need not be UTF-8.
    options: Vec<OsString>,
    unchecked: Vec<OsString>,
    expressions: Vec<String>,
    architecture: Architecture,
}

/// The architecture that a program is compiled for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Architecture {
    /// NVRTC's default, the oldest architecture that it supports: as PTX only.
    Oldest,
    /// The newest architecture that NVRTC supports, up to this one.
    UpTo(u32),
    /// The architecture with this name.
    Named(String),
}

impl Program {
    /// Creates a program without options.
    #[doc(alias("nvrtcCreateProgram"))]
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            name: "default_program".to_owned(),
            headers: Vec::new(),
            options: Vec::new(),
            unchecked: Vec::new(),
            expressions: Vec::new(),
            architecture: Architecture::Oldest,
        }
    }

    /// Sets the program's name in the compiler's messages.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds the text for `#include "name"` and `#include <name>`.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Adds an option as NVRTC takes it: `--use_fast_math`, `-lineinfo`.
    ///
    /// Compiling refuses, with [`Error::Invalid`], options of precompiled headers and `--fdevice-time-trace`, for
    /// which there is [`option_unchecked`](Self::option_unchecked), and values for which NVRTC would end the
    /// process: nothing after the `=`, and numbers of more than 32 bits.
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Adds an option that [`option`](Self::option) refuses: `--pch`, `--create-pch`, `--use-pch`,
    /// `--pch-dir` (since NVRTC 12.8); `--fdevice-time-trace`, which ends the process if NVRTC cannot write the
    /// file.
    ///
    /// # Safety
    /// NVRTC takes the bytes of a precompiled header for its own memory, without a check: this NVRTC has written
    /// each such file that the option names or makes it find, and nothing has changed the file since. NVRTC
    /// accepts the option's value; it throws a C++ exception for some values.
    ///
    /// ```no_run
    /// use cuda_core::nvrtc::Program;
    ///
    /// let program = Program::new("#include \"large.h\"").header("large.h", "/* many templates */");
    /// // SAFETY: the directory is this process's own.
    /// let program = unsafe { program.option_unchecked("--pch").option_unchecked("--pch-dir=/run/me") };
    /// let ptx = program.compile()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn option_unchecked(mut self, option: impl Into<OsString>) -> Self {
        self.unchecked.push(option.into());
        self
    }

    /// Adds a folder to search for `#include`: `--include-path`.
    pub fn include_path(self, path: impl AsRef<Path>) -> Self {
        let mut option = OsString::from("--include-path=");
        option.push(path.as_ref());
        self.option(option)
    }

    /// Adds the folders of a CUDA toolkit's headers, such as `cuda_fp16.h`, `cooperative_groups.h`
    /// and `cuda/std/atomic`, to search for `#include`. The toolkit is the first below `CUDA_HOME`,
    /// `CUDA_PATH` or, except on Windows, `/usr/local/cuda`, that has `include/cuda_fp16.h`. A
    /// set-uid program ignores the two variables. For headers elsewhere, as in NVIDIA's Python
    /// packages, use [`include_path`](Self::include_path).
    ///
    /// # Errors
    /// [`Error::Invalid`] if none of these folders has the headers.
    ///
    /// ```no_run
    /// use cuda_core::nvrtc::Program;
    ///
    /// let source = "#include <cuda_fp16.h>\n__global__ void twice(__half *x) { *x += *x; }";
    /// let ptx = Program::new(source).toolkit_headers()?.compile()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn toolkit_headers(self) -> Result<Self> {
        let why = "no toolkit's headers are below CUDA_HOME, CUDA_PATH or /usr/local/cuda: set CUDA_HOME, \
                   or call `include_path` with the folder that has cuda_fp16.h";
        let folders = api::header_folders();
        let folders = folders.ok_or_else(|| Error::invalid("Program::toolkit_headers", why))?;
        Ok(folders.fold(self, Self::include_path))
    }

    /// Defines a macro with a value, usually `1`: `--define-macro`.
    pub fn define(self, name: &str, value: impl fmt::Display) -> Self {
        self.option(format!("--define-macro={name}={value}"))
    }

    /// Compiles for a compute capability, 90 for 9.0, or, if NVRTC does not support that one, for the
    /// newest before it that it supports: `--gpu-architecture`.
    pub fn capability(mut self, capability: u32) -> Self {
        self.architecture = Architecture::UpTo(capability);
        self
    }

    /// Compiles for an architecture by its name, without `sm_` or `compute_`: `--gpu-architecture`.
    /// Replaces [`Program::capability`], and vice versa.
    ///
    /// Names may end in a letter, which [`Program::capability`] cannot express: code for `90a` may
    /// use every instruction of capability 9.0 and runs on no other capability; code for `100f`
    /// runs on its family.
    ///
    /// ```no_run
    /// use cuda_core::nvrtc::Program;
    ///
    /// let program = Program::new("__global__ void multiply() { /* wgmma, setmaxnreg */ }");
    /// let cubin = program.architecture("90a").compile_cubin()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn architecture(mut self, name: impl Into<String>) -> Self {
        self.architecture = Architecture::Named(name.into());
        self
    }

    /// Sets the [`Program::capability`] of a device.
    ///
    /// # Errors
    /// The driver's.
    pub fn device(self, device: Device) -> Result<Self> {
        let (major, minor) = device.compute_capability()?;
        // The driver returns no negative numbers.
        Ok(self.capability(10 * major as u32 + minor as u32))
    }

    /// Adds an expression that names a kernel or a variable, such as `scale<float>`:
    /// `nvrtcAddNameExpression`. NVRTC instantiates its templates, and its mangled name is
    /// available after compiling.
    #[doc(alias("nvrtcAddNameExpression"))]
    pub fn name_expression(mut self, expression: impl Into<String>) -> Self {
        self.expressions.push(expression.into());
        self
    }

    /// The program's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The program's [name](Self::name).
    pub fn get_name(&self) -> &str {
        &self.name
    }

    /// The [headers](Self::header), each with its name and its text.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The options: those [given as they are](Self::option), [paths](Self::include_path) and
    /// [macros](Self::define), then those that are [not checked](Self::option_unchecked). The
    /// architecture is not among them: it is chosen when the program is compiled.
    ///
    /// ```
    /// use cuda_core::nvrtc::Program;
    ///
    /// let program = Program::new("").option("-lineinfo").define("N", 32);
    /// assert!(program.options().eq(["-lineinfo", "--define-macro=N=32"]));
    /// ```
    pub fn options(&self) -> impl Iterator<Item = &OsStr> {
        self.options.iter().chain(&self.unchecked).map(OsString::as_os_str)
    }

    /// The [expressions](Self::name_expression) whose mangled names will be available.
    pub fn name_expressions(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(String::as_str)
    }

    /// The [compute capability](Self::capability) to compile for, if that was set last.
    pub fn get_capability(&self) -> Option<u32> {
        match self.architecture {
            Architecture::UpTo(capability) => Some(capability),
            _ => None,
        }
    }

    /// The [name of the architecture](Self::architecture) to compile for, if that was set last.
    pub fn get_architecture(&self) -> Option<&str> {
        match &self.architecture {
            Architecture::Named(name) => Some(name),
            _ => None,
        }
    }

    /// Compiles to PTX: `nvrtcCompileProgram`, `nvrtcGetPTX`.
    ///
    /// # Errors
    /// [`Error::Nvrtc`] with the compiler's log; [`Error::NoNvrtc`]; [`Error::Invalid`].
    #[doc(alias("nvrtcCompileProgram"))]
    pub fn compile(&self) -> Result<Ptx> {
        let api = api()?;
        let (program, log) = self.build(api, "compute")?;
        let bytes = program.output("nvrtcGetPTX", api.ptx_size, api.ptx)?;
        Ok(Ptx::new(c_text(&bytes), self.output(&program, log)?))
    }

    /// Compiles to a binary for devices of the program's [capability](Program::capability) or
    /// [architecture](Program::architecture): `nvrtcCompileProgram`, `nvrtcGetCUBIN`. One of the
    /// two must be set. Load the binary with [`Module::from_cubin`](crate::Module::from_cubin).
    ///
    /// # Errors
    /// As [`Program::compile`]; [`Error::Nvrtc`] if neither is set.
    pub fn compile_cubin(&self) -> Result<Cubin> {
        let api = api()?;
        let (program, log) = self.build(api, "sm")?;
        let image = program.output("nvrtcGetCUBIN", api.cubin_size, api.cubin)?;
        // "The value of cubinSizeRet is set to 0 if the value specified to -arch is a virtual
        // architecture", and the default architecture is virtual.
        if image.is_empty() {
            let reason = "NVRTC_ERROR_INVALID_OPTION: there is no binary: it takes a real architecture \
                          (Program::capability or Program::architecture), and no link-time optimisation";
            let (op, code, reason) = ("nvrtcGetCUBIN", INVALID_OPTION, reason.to_owned());
            return Err(Nvrtc { op, code, reason, log }.into());
        }
        Ok(Cubin::new(image, self.output(&program, log)?))
    }

    /// Compiles the program, and returns it with its log. `kind` is the kind of architecture:
    /// `compute` (virtual) or `sm` (real).
    fn build<'a>(&self, api: &'a Api, kind: &str) -> Result<(CreatedProgram<'a>, String)> {
        let source = c_string("nvrtcCreateProgram", &self.source)?;
        let name = c_string("nvrtcCreateProgram", &self.name)?;
        let names = self.headers.iter().map(|(name, _)| name);
        let names = c_strings("nvrtcCreateProgram", names)?;
        let texts = c_strings("nvrtcCreateProgram", self.headers.iter().map(|(_, text)| text))?;
        let expressions = c_strings("nvrtcAddNameExpression", &self.expressions)?;
        self.options.iter().try_for_each(|option| options::admit(option))?;
        let mut options = c_strings("nvrtcCompileProgram", self.options())?;
        if let Some(architecture) = self.target()? {
            let option = format!("--gpu-architecture={kind}_{architecture}");
            options.push(c_string("nvrtcCompileProgram", &option)?);
        }
        let program = CreatedProgram::create(api, &source, &name, &names, &texts)?;
        for expression in &expressions {
            program.add_name_expression(expression)?;
        }
        let log = program.compile(&options)?;
        Ok((program, log))
    }

    /// Returns the architecture's name; [`None`] for NVRTC's default.
    fn target(&self) -> Result<Option<String>> {
        Ok(match &self.architecture {
            Architecture::Oldest => None,
            Architecture::UpTo(wanted) => {
                let known = supported_architectures()?;
                let best = known.into_iter().filter(|known| known <= wanted).max();
                // If NVRTC supports none that old, its own error is better.
                Some(best.unwrap_or(*wanted).to_string())
            }
            Architecture::Named(name) => Some(name.clone()),
        })
    }

    /// Returns the results besides the code.
    fn output(&self, program: &CreatedProgram<'_>, log: String) -> Result<Output> {
        let name = |expression: &String| {
            let symbol = c_string("nvrtcGetLoweredName", expression)?;
            Ok((expression.clone(), program.lowered_name(&symbol)?))
        };
        let names = self.expressions.iter().map(name).collect::<Result<_>>()?;
        Ok(Output { log, names })
    }
}

/// `NVRTC_ERROR_INVALID_OPTION`.
const INVALID_OPTION: i32 = 5;

fn c_strings<'a>(
    op: &'static str,
    texts: impl IntoIterator<Item = &'a (impl AsRef<OsStr> + ?Sized + 'a)>,
) -> Result<Vec<CString>> {
    let texts = texts.into_iter();
    texts.map(|text| c_string(op, text)).collect()
}

impl Api {
    /// Turns NVRTC's result code into this crate's result.
    fn check(&self, op: &'static str, code: i32) -> Result<()> {
        self.check_with_log(op, code, String::new)
    }

    fn check_with_log(
        &self,
        op: &'static str,
        code: i32,
        log: impl FnOnce() -> String,
    ) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the call takes no pointer, and answers every number.
        let reason: *const c_char = unsafe { (self.error_string)(code) };
        let reason = if reason.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: a static C string.
            unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
        };
        Err(Nvrtc { op, code, reason, log: log() }.into())
    }
}

/// Returns the addresses of C strings, which must outlive the use of the addresses.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// Returns an array's address; null for an empty array.
fn array<T>(array: &[T]) -> *const T {
    if array.is_empty() { ptr::null() } else { array.as_ptr() }
}
