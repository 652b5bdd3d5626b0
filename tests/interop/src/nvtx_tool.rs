//! A tool for NVTX, as profilers are: `NVTX_INJECTION64_PATH` names this library, which notes what it sees.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_core::nvtx;

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct Callbacks {
    size: usize,
    functions_of: unsafe extern "C" fn(c_int, *mut *const *const Function, *mut c_uint) -> c_int,
}

/// Where the tool writes a function's address.
type Function = AtomicPtr<c_void>;

/// Events without a domain, and the places of functions among theirs.
const CORE: c_int = 1;
const MARK_A: usize = 2;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

/// The entry of every tool: asks for NVTX's tables, and sets the functions that the tool has.
///
/// # Safety
/// `export_table` is NVTX's function of that type: for 1 it returns the table of callbacks.
#[allow(non_snake_case, reason = "NVTX looks for this name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    export_table: unsafe extern "C" fn(u32) -> *const Callbacks,
) -> c_int {
    // SAFETY: NVTX's function, by this function's contract.
    let callbacks = unsafe { export_table(1) };
    // SAFETY: null, or the table, which is static.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }) else {
        return 0;
    };
    let (mut table, mut size) = (ptr::null(), 0);
    // SAFETY: both are locals that outlive the call.
    let found = unsafe { (callbacks.functions_of)(CORE, &mut table, &mut size) };
    if found == 0 || size as usize <= RANGE_POP {
        return 0;
    }
    for (at, function) in [
        (MARK_A, mark as *const c_void),
        (RANGE_PUSH_A, push as *const c_void),
        (RANGE_POP, pop as *const c_void),
    ] {
        // SAFETY: within the table, by its size.
        let place = unsafe { table.wrapping_add(at).read() };
        // SAFETY: the place of a function, which is static.
        unsafe { &*place }.store(function.cast_mut(), Ordering::Release);
    }
    1
}

unsafe extern "C" fn push(name: *const c_char) -> c_int {
    note("push", name);
    0
}

unsafe extern "C" fn mark(name: *const c_char) {
    note("mark", name);
}

unsafe extern "C" fn pop() -> c_int {
    note("pop", c"".as_ptr());
    0
}

fn note(what: &str, name: *const c_char) {
    // SAFETY: NVTX gives a C string, for the length of the call.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let mut seen = SEEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    seen.push(format!("{what} {name}").trim_end().to_owned());
}

/// Begins and ends ranges, and returns what the tool has seen, a line each; valid until the thread's next
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn interop_nvtx() -> *const c_char {
    let outer = nvtx::range("outer");
    nvtx::ranged("inner", || nvtx::mark("within"));
    drop(outer);
    let seen = SEEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).join("\n");
    TEXT.set(CString::new(seen).unwrap_or_default());
    TEXT.with_borrow(|text| text.as_ptr())
}
