//! A program object of NVRTC.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use super::api::{Api, RawProgram};
use super::{array, pointers};
use crate::error::{Result, c_text};

/// A program object of NVRTC, destroyed when dropped.
pub(super) struct CreatedProgram<'a> {
    api: &'a Api,
    // INVARIANT: created by `nvrtcCreateProgram`, destroyed in `drop` only.
    raw: RawProgram,
}

impl<'a> CreatedProgram<'a> {
    /// `nvrtcCreateProgram`; there must be as many `texts` as `names`.
    pub(super) fn create(
        api: &'a Api,
        source: &CStr,
        name: &CStr,
        names: &[CString],
        texts: &[CString],
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        let (names, texts) = (pointers(names), pointers(texts));
        // SAFETY: the call writes one handle, to a local that outlives it; all strings are
        // NUL-terminated, and the two arrays have as many elements as passed. NVRTC copies what it
        // keeps.
        let code = unsafe {
            (api.create_program)(
                &mut raw,
                source.as_ptr(),
                name.as_ptr(),
                texts.len() as c_int,
                array(&texts),
                array(&names),
            )
        };
        api.check("nvrtcCreateProgram", code)?;
        Ok(Self { api, raw })
    }

    /// `nvrtcAddNameExpression`, before the program is compiled.
    pub(super) fn add_name_expression(&self, expression: &CStr) -> Result<()> {
        // SAFETY: by the invariant the program is live; the expression is NUL-terminated and read
        // during the call only.
        let code = unsafe { (self.api.add_name_expression)(self.raw, expression.as_ptr()) };
        self.api.check("nvrtcAddNameExpression", code)
    }

    /// `nvrtcCompileProgram`; returns the log, also on failure.
    pub(super) fn compile(&self, options: &[CString]) -> Result<String> {
        let options = pointers(options);
        // SAFETY: by the invariant the program is live; there are as many options as passed, all
        // NUL-terminated and read during the call only. `options::admit` has refused those that
        // would break memory, or the caller of `option_unchecked` has promised that they do not.
        let code = unsafe {
            (self.api.compile_program)(self.raw, options.len() as c_int, array(&options))
        };
        let log = || self.log().unwrap_or_default();
        self.api.check_with_log("nvrtcCompileProgram", code, log)?;
        self.log()
    }

    fn log(&self) -> Result<String> {
        let bytes = self.output("nvrtcGetProgramLog", self.api.log_size, self.api.log)?;
        Ok(c_text(&bytes).trim_end().to_owned())
    }

    /// Returns one of NVRTC's results, by two functions for the same program: the size, and the
    /// bytes.
    pub(super) fn output(
        &self,
        op: &'static str,
        size: unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
        get: unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: by the invariant the program is live; the call writes one size, to a local that
        // outlives it.
        self.api.check(op, unsafe { size(self.raw, &mut len) })?;
        let mut bytes = vec![0u8; len];
        if len > 0 {
            let to = bytes.as_mut_ptr().cast();
            // SAFETY: by the invariant the program is live; there is room for as many bytes as
            // NVRTC reported.
            self.api.check(op, unsafe { get(self.raw, to) })?;
        }
        Ok(bytes)
    }

    /// `nvrtcGetLoweredName`, for an expression added before.
    pub(super) fn lowered_name(&self, expression: &CStr) -> Result<String> {
        let mut name = ptr::null();
        // SAFETY: by the invariant the program is live; the expression is NUL-terminated and read
        // during the call only; the call writes one pointer, to a local that outlives it.
        let code = unsafe { (self.api.lowered_name)(self.raw, expression.as_ptr(), &mut name) };
        self.api.check("nvrtcGetLoweredName", code)?;
        // SAFETY: a C string that lives as long as the program ("the memory for the lowered name
        // is owned by the program").
        let name = unsafe { CStr::from_ptr(name) };
        Ok(name.to_string_lossy().into_owned())
    }
}

impl Drop for CreatedProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: by the invariant the program is live, and nothing uses it after this; the call
        // takes its address to clear it. A failure leaks some host memory.
        unsafe { (self.api.destroy_program)(&mut self.raw) };
    }
}
