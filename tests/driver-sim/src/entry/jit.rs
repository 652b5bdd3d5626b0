//! Options of the compiler, and the results that it writes back.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::*;

use super::module::text;
use crate::call::{Outcome, list};
use crate::engine::work::HostPtr;
use crate::handle::pointer;
use crate::module::ptx::{self, Ptx};

/// The compiler options that this driver implements; it accepts and ignores the others.
#[derive(Debug, Default)]
pub(super) struct Options {
    wall_time: Option<usize>,
    info_log: Log,
    error_log: Log,
    verbose: bool,
    info: String,
    errors: String,
}

/// A buffer for a log, and the option through which its length is returned.
#[derive(Debug, Default)]
struct Log {
    buffer: Option<HostPtr>,
    size: Option<(usize, usize)>,
}

impl Options {
    /// # Safety
    /// `keys` and `values` have `count` entries.
    pub(super) unsafe fn read(
        count: usize,
        keys: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> Outcome<Self> {
        let mut options = Self::default();
        // SAFETY: there are `count` keys.
        let keys = unsafe { list(keys, count) }?;
        // SAFETY: there are `count` values.
        let values = unsafe { list(values, count) }?;
        for (index, (&key, value)) in keys.iter().zip(values).enumerate() {
            match key {
                CU_JIT_WALL_TIME => options.wall_time = Some(index),
                CU_JIT_INFO_LOG_BUFFER => options.info_log.buffer = Some(HostPtr(value.cast())),
                CU_JIT_ERROR_LOG_BUFFER => options.error_log.buffer = Some(HostPtr(value.cast())),
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    options.info_log.size = Some((index, value.addr()));
                }
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    options.error_log.size = Some((index, value.addr()));
                }
                CU_JIT_LOG_VERBOSE => options.verbose = value.addr() != 0,
                _ => {}
            }
        }
        Ok(options)
    }

    /// Compiles the image, and returns what it declares.
    ///
    /// # Safety
    /// `image` is null, NUL-terminated text, or an image of at least four bytes.
    pub(super) unsafe fn compile(&mut self, image: *const c_void) -> Outcome<Arc<Ptx>> {
        // SAFETY: a C string, or a binary, which is a C string up to its first NUL byte.
        let image = unsafe { text(image.cast()) }?;
        if !ptx::is_ptx(&image) {
            // The image is no text for the compiler, and the simulator does not run binaries.
            self.complain("error   : Binary format for key='0', ident='' is not recognized");
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let ptx = self.read_text(&image)?;
        if let Some(name) = ptx.unresolved() {
            let complaint = format!("ptxas fatal   : Unresolved extern function '{name}'");
            self.complain(&complaint);
            return Err(CUDA_ERROR_INVALID_PTX);
        }
        Ok(ptx)
    }

    /// Parses a text, and returns what it declares. Other texts may define what it needs.
    pub(super) fn read_text(&mut self, image: &str) -> Outcome<Arc<Ptx>> {
        if image.starts_with("\x7fELF") {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let ptx = ptx::read(image).map_err(|complaint| {
            self.complain(&complaint);
            CUDA_ERROR_INVALID_PTX
        })?;
        if self.verbose {
            for name in ptx.kernels.keys() {
                self.info += &format!("Compiling entry function '{name}'\n");
            }
        }
        Ok(ptx)
    }

    /// Appends to the error log.
    pub(super) fn complain(&mut self, complaint: &str) {
        if !self.errors.is_empty() {
            self.errors.push('\n');
        }
        self.errors += complaint;
    }

    /// # Safety
    /// The values, and the buffers among them, are still valid.
    pub(super) unsafe fn answer(&self, values: *mut *mut c_void) {
        if let Some(index) = self.wall_time {
            // SAFETY: the index was among the values.
            let value = unsafe { values.add(index) };
            let milliseconds = pointer(1.5f32.to_bits() as usize);
            // SAFETY: this is one of the caller's values, which the option allows the driver to write.
            unsafe { value.write(milliseconds) };
        }
        for (log, text) in [(&self.info_log, &self.info), (&self.error_log, &self.errors)] {
            let (Some(HostPtr(buffer)), Some((index, size))) = (log.buffer, log.size) else {
                continue;
            };
            let len = text.len().min(size.saturating_sub(1));
            // SAFETY: the buffer has `size` bytes, and `len` is at most that.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, len) };
            // SAFETY: `len` is at most the size of the buffer.
            let end = unsafe { buffer.add(len) };
            if size > 0 {
                // SAFETY: `len` is less than `size`, so the end is inside the buffer too.
                unsafe { end.write(0) };
            }
            // SAFETY: the index was among the values.
            let value = unsafe { values.add(index) };
            // SAFETY: this is one of the caller's values, which the option allows the driver to write.
            unsafe { value.write(pointer(len)) };
        }
    }
}

/// What a driver that compiles lazily keeps of a load call. It writes to the caller's option values once more
/// before the code is unloaded.
#[derive(Debug)]
pub(crate) struct Answers {
    options: Options,
    values: HostPtr,
}

impl Answers {
    pub(super) fn kept(options: Options, values: *mut *mut c_void) -> Self {
        let values = HostPtr(values.cast());
        Self { options, values }
    }

    pub(super) fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// # Safety
    /// As for [`Options::answer`].
    pub(super) unsafe fn again(&self) {
        // SAFETY: this function's contract is the same.
        unsafe { self.options.answer(self.values.0.cast()) };
    }
}
