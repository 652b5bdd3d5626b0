//! Options of the driver's compiler, and what it returns.

use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::time::Duration;

use cuda_sys::{CUjit_cacheMode, CUjit_fallback, CUjit_option, CUjit_target, CUresult};

use super::{compiled, is_about_the_image};
use crate::error::{Result, c_text};
use crate::process::effect::is_refusal;
use crate::util::raw_enum;

raw_enum! {
    /// The driver's fallback if an image holds no code for the device.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # const PTX: &str = "";
    /// use cuda_core::{Module, jit::{JitFallback, JitOptions}};
    ///
    /// let options = JitOptions::new().fallback(JitFallback::PreferBinary).verbose(true);
    /// let module = Module::from_ptx_with(&context, PTX, &options)?;
    /// println!("{}", module.log()); // registers and memory of each kernel
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    JitFallback: CUjit_fallback {
        /// Compiles the PTX in the image: `CU_PREFER_PTX`.
        PreferPtx = CU_PREFER_PTX,
        /// Uses a binary for another device that this one can run: `CU_PREFER_BINARY`.
        PreferBinary = CU_PREFER_BINARY,
    }
}

raw_enum! {
    /// The cache that the compiler prefers for loads from global memory.
    ///
    /// ```
    /// use cuda_core::jit::{JitCache, JitOptions};
    ///
    /// let streaming = JitOptions::new().cache(JitCache::Global); // every element is read once
    /// ```
    JitCache: CUjit_cacheMode {
        /// No option: `CU_JIT_CACHE_OPTION_NONE`.
        Default = CU_JIT_CACHE_OPTION_NONE,
        /// Bypasses the L1 cache: `CU_JIT_CACHE_OPTION_CG`.
        Global = CU_JIT_CACHE_OPTION_CG,
        /// Uses the L1 cache: `CU_JIT_CACHE_OPTION_CA`.
        All = CU_JIT_CACHE_OPTION_CA,
    }
}

/// Options of the driver's PTX compiler, for a [`Module`](crate::Module), a `Library` or a
/// [`Linker`](crate::jit::Linker).
///
/// Options that are not set are left to the driver. The compiler's logs and time are always
/// requested: see [`ModuleError::Compile`](crate::ModuleError::Compile), and `log` and `wall_time`
/// of [modules](crate::Module::log) and libraries.
///
/// ```
/// use cuda_core::jit::{JitCache, JitOptions};
///
/// let options = JitOptions::new().max_registers(64).optimization_level(3).cache(JitCache::All);
/// assert_eq!((options.get_max_registers(), options.get_cache()), (Some(64), JitCache::All));
/// assert_eq!(options.get_verbose(), None); // left to the driver
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[must_use]
pub struct JitOptions {
    // Every key has a value: without one, the driver would read past the end of the array of
    // values.
    pairs: Vec<(CUjit_option, u32)>,
}

/// Size of each of the two logs, in bytes.
const LOG: usize = 16 << 10;

impl JitOptions {
    /// Leaves every option to the driver.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, option: CUjit_option, value: impl Into<Option<u32>>) -> Self {
        self.pairs.retain(|(known, _)| *known != option);
        // Sorted by option, so that equal sets compare equal in whatever order they were set.
        let at = self.pairs.partition_point(|(known, _)| known.0 < option.0);
        value.into().into_iter().for_each(|value| self.pairs.insert(at, (option, value)));
        self
    }

    /// Sets the most registers that a thread may use: `CU_JIT_MAX_REGISTERS`.
    pub fn max_registers(self, registers: u32) -> Self {
        self.set(cuda_sys::CU_JIT_MAX_REGISTERS, registers)
    }

    /// Sets the number of threads that a block must at least be able to have, which limits the
    /// registers of each thread: `CU_JIT_THREADS_PER_BLOCK`. Excludes [`JitOptions::target`].
    pub fn threads_per_block(self, threads: u32) -> Self {
        self.set(cuda_sys::CU_JIT_THREADS_PER_BLOCK, threads)
    }

    /// Sets how much the compiler optimises, 0 to 4; 4 is the driver's default:
    /// `CU_JIT_OPTIMIZATION_LEVEL`.
    pub fn optimization_level(self, level: u32) -> Self {
        self.set(cuda_sys::CU_JIT_OPTIMIZATION_LEVEL, level)
    }

    /// Compiles for a compute capability, by CUDA's own name (`sys::CU_TARGET_COMPUTE_90`), instead
    /// of for the context's device: `CU_JIT_TARGET`.
    pub fn target(self, target: CUjit_target) -> Self {
        self.set(cuda_sys::CU_JIT_TARGET, Some(target.0 as _))
    }

    /// Sets what to do if an image holds no code for the device: `CU_JIT_FALLBACK_STRATEGY`.
    pub fn fallback(self, fallback: JitFallback) -> Self {
        self.set(cuda_sys::CU_JIT_FALLBACK_STRATEGY, Some(fallback.as_raw().0 as _))
    }

    /// Sets whether code for a debugger is generated: `CU_JIT_GENERATE_DEBUG_INFO`.
    pub fn debug_info(self, generate: bool) -> Self {
        self.set(cuda_sys::CU_JIT_GENERATE_DEBUG_INFO, u32::from(generate))
    }

    /// Sets whether line numbers are kept for profilers: `CU_JIT_GENERATE_LINE_INFO`.
    pub fn line_info(self, generate: bool) -> Self {
        self.set(cuda_sys::CU_JIT_GENERATE_LINE_INFO, u32::from(generate))
    }

    /// Sets whether the compiler logs how many registers and bytes each kernel uses:
    /// `CU_JIT_LOG_VERBOSE`.
    pub fn verbose(self, verbose: bool) -> Self {
        self.set(cuda_sys::CU_JIT_LOG_VERBOSE, u32::from(verbose))
    }

    /// Sets which cache loads prefer: `CU_JIT_CACHE_MODE`.
    pub fn cache(self, cache: JitCache) -> Self {
        let mode = Some(cache).filter(|cache| *cache != JitCache::Default);
        self.set(cuda_sys::CU_JIT_CACHE_MODE, mode.map(|mode| mode.as_raw().0 as _))
    }

    fn get(&self, option: CUjit_option) -> Option<u32> {
        self.pairs.iter().find(|(known, _)| *known == option).map(|(_, value)| *value)
    }

    /// The [most registers](Self::max_registers) that a thread may use, if set.
    pub fn get_max_registers(&self) -> Option<u32> {
        self.get(cuda_sys::CU_JIT_MAX_REGISTERS)
    }

    /// The [number of threads](Self::threads_per_block) that a block must be able to have, if set.
    pub fn get_threads_per_block(&self) -> Option<u32> {
        self.get(cuda_sys::CU_JIT_THREADS_PER_BLOCK)
    }

    /// How much the compiler [optimises](Self::optimization_level), if set.
    pub fn get_optimization_level(&self) -> Option<u32> {
        self.get(cuda_sys::CU_JIT_OPTIMIZATION_LEVEL)
    }

    /// The [compute capability](Self::target) to compile for, if set.
    pub fn get_target(&self) -> Option<CUjit_target> {
        self.get(cuda_sys::CU_JIT_TARGET).map(|target| CUjit_target(target as _))
    }

    /// What to do [if an image holds no code](Self::fallback) for the device, if set.
    pub fn get_fallback(&self) -> Option<JitFallback> {
        let fallback = self.get(cuda_sys::CU_JIT_FALLBACK_STRATEGY)?;
        JitFallback::from_raw(CUjit_fallback(fallback as _))
    }

    /// Whether code for a debugger [is generated](Self::debug_info), if set.
    pub fn get_debug_info(&self) -> Option<bool> {
        self.get(cuda_sys::CU_JIT_GENERATE_DEBUG_INFO).map(|set| set != 0)
    }

    /// Whether [line numbers](Self::line_info) are kept, if set.
    pub fn get_line_info(&self) -> Option<bool> {
        self.get(cuda_sys::CU_JIT_GENERATE_LINE_INFO).map(|set| set != 0)
    }

    /// Whether the compiler [logs](Self::verbose) what kernels use, if set.
    pub fn get_verbose(&self) -> Option<bool> {
        self.get(cuda_sys::CU_JIT_LOG_VERBOSE).map(|set| set != 0)
    }

    /// Which [cache](Self::cache) loads prefer.
    pub fn get_cache(&self) -> JitCache {
        let mode = self.get(cuda_sys::CU_JIT_CACHE_MODE);
        let mode = mode.and_then(|mode| JitCache::from_raw(CUjit_cacheMode(mode as _)));
        mode.unwrap_or(JitCache::Default)
    }

    /// Returns the arguments of one compiler call.
    pub(super) fn prepare(&self) -> JitCall {
        let (mut info, mut errors, size) = (vec![0; LOG], vec![0; LOG], number(LOG as u32));
        // The outputs come first, so that their positions are known.
        let outputs = [
            (cuda_sys::CU_JIT_WALL_TIME, ptr::null_mut()),
            (cuda_sys::CU_JIT_INFO_LOG_BUFFER, info.as_mut_ptr().cast()),
            (cuda_sys::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, size),
            (cuda_sys::CU_JIT_ERROR_LOG_BUFFER, errors.as_mut_ptr().cast()),
            (cuda_sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, size),
        ];
        let options = self.pairs.iter().map(|(key, value)| (*key, number(*value)));
        let (keys, values) = outputs.into_iter().chain(options).unzip();
        JitCall { keys, values, info, errors }
    }
}

/// Returns a number as the driver takes it for an option: in place of a pointer.
fn number(value: u32) -> *mut c_void {
    ptr::without_provenance_mut(value as usize)
}

/// Keys and values of one call, with the buffers that they point to.
pub(super) struct JitCall {
    // INVARIANT: there are as many values as keys; none of the four vectors is resized: the driver
    // has their addresses.
    keys: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    info: Vec<u8>,
    errors: Vec<u8>,
}

/// The compiler's logs and time.
#[derive(Default)]
pub(super) struct JitOutcome {
    pub(super) info: String,
    pub(super) errors: String,
    pub(super) wall_time: Duration,
}

impl JitCall {
    /// Returns pointers to keys and values, and their number; valid while `self` exists. They are
    /// the vectors' own pointers, which stay valid when the vectors are read.
    pub(super) fn pairs(&mut self) -> (*mut CUjit_option, *mut *mut c_void, u32) {
        let count = self.keys.len() as u32;
        (self.keys.as_mut_ptr(), self.values.as_mut_ptr(), count)
    }

    pub(super) fn outcome(&self) -> JitOutcome {
        // The driver writes a `float`, in milliseconds, in place of the value.
        let bits = self.values.first().map_or(0, |value| value.addr() as u32);
        let seconds = f32::from_bits(bits) / 1e3;
        JitOutcome {
            info: c_text(&self.info).trim_end().to_owned(),
            errors: c_text(&self.errors).trim_end().to_owned(),
            wall_time: Duration::try_from_secs_f32(seconds).unwrap_or_default(),
        }
    }
}

/// The buffers that the driver was given for its logs. CUDA does not document that the driver
/// leaves them alone after the call, and it may compile more when code is first used. So they stay
/// until the code is unloaded.
pub(super) struct Outputs {
    /// Leaked together with code that cannot be unloaded.
    call: Option<ManuallyDrop<JitCall>>,
    /// The log and the time of loading the code.
    pub(super) log: String,
    pub(super) wall_time: Duration,
}

// SAFETY: only the driver accesses the buffers, and any thread may free them.
unsafe impl Send for Outputs {}
// SAFETY: a shared reference gives out no buffer.
unsafe impl Sync for Outputs {}

impl Outputs {
    /// Returns the outputs of `op`, which was called with these buffers and returned `code`; fails
    /// if `op` failed.
    pub(super) fn of(op: &'static str, code: CUresult, call: JitCall) -> Result<Self> {
        let JitOutcome { info, errors, wall_time } = call.outcome();
        if let Err(error) = compiled(op, code, errors) {
            // Code that was loaded despite an error of earlier work keeps the buffers until its
            // context ends.
            if !is_about_the_image(code) && !is_refusal(code) {
                mem::forget(call);
            }
            return Err(error);
        }
        Ok(Self { call: Some(ManuallyDrop::new(call)), log: info, wall_time })
    }

    /// Returns what was logged so far. Exclusive, so that no call that writes logs is in progress.
    pub(super) fn outcome(&mut self) -> JitOutcome {
        self.call.as_ref().map(|call| call.outcome()).unwrap_or_default()
    }

    /// Frees the buffers, once the code is unloaded.
    pub(super) fn free(&mut self) {
        drop(self.call.take().map(ManuallyDrop::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_its_value() {
        let options = JitOptions::new()
            .max_registers(32)
            .threads_per_block(128)
            .optimization_level(2)
            .target(cuda_sys::CU_TARGET_COMPUTE_80)
            .fallback(JitFallback::PreferBinary)
            .debug_info(true)
            .line_info(false)
            .verbose(true)
            .cache(JitCache::Global)
            .max_registers(64);
        let mut call = options.prepare();
        let (_, _, count) = call.pairs();
        assert_eq!(count, 5 + 9);
        assert_eq!(call.values.len(), call.keys.len());
        let value = |key| {
            let at = call.keys.iter().position(|known| *known == key);
            call.values[at.expect("set")].addr()
        };
        assert_eq!(value(cuda_sys::CU_JIT_MAX_REGISTERS), 64);
        assert_eq!(value(cuda_sys::CU_JIT_TARGET), 80);
        assert_eq!(value(cuda_sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES), LOG);
        let options = options.cache(JitCache::Default);
        assert_eq!(options.prepare().keys.len(), 5 + 8);
    }

    #[test]
    fn the_driver_may_answer_again() {
        let mut call = JitOptions::new().prepare();
        let (_, values, _) = call.pairs();
        for milliseconds in [1.0f32, 2.0] {
            // SAFETY: the first of the values, which live as long as `call`.
            unsafe { values.write(number(milliseconds.to_bits())) };
            let expected = Duration::from_secs_f32(milliseconds / 1e3);
            assert_eq!(call.outcome().wall_time, expected);
        }
    }
}
