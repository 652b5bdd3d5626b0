//! Names for profilers: NVTX ranges and marks.
//!
//! Nsight Systems and other tools that show NVTX set the variable `NVTX_INJECTION64_PATH` for the programs
//! that they run to the path of their own library. The first call loads that library. Without the variable,
//! or in a set-uid program, each call is one atomic load and does nothing. Nothing else has to be installed.
//! Events belong to the default domain.
//!
//! ```no_run
//! use cuda_core::{Device, nvtx};
//!
//! let stream = Device::get(0)?.create_stream()?;
//! let range = nvtx::range("prepare");
//! let buffer = stream.alloc_zeroed::<f32>(1 << 20)?; // within the range
//! nvtx::mark("allocated");
//! drop(range);
//! # Ok::<(), cuda_core::Error>(())
//! ```
//!
//! Profilers also show the GPU work of a range: the work enqueued between its begin and its end. An
//! [`NvtxEvent`] has a colour, a category and a number; [`Stream::set_name`](crate::Stream::set_name) names
//! the row of a stream.

mod event;

use std::env;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_sys::CUstream;
use cuda_sys::os::{self, LoadOnce};

use crate::util::library;

use event::{EventAttributes, c_name};

pub use event::{NvtxEvent, NvtxPayload};

/// A range of the calling thread; ends when it is dropped. Made by [`range`].
#[must_use = "dropping it ends the range"]
#[derive(Debug)]
pub struct NvtxRange {
    begun: bool,
    /// Ranges nest on the thread that begins them.
    _not_send: PhantomData<*const ()>,
}

/// Begins a range with a name or an [`NvtxEvent`] on the calling thread, nested in the ranges that are open
/// there: `nvtxRangePushA`, `nvtxRangePushEx`. The name ends at a NUL.
///
/// ```no_run
/// let _step = cuda_core::nvtx::range("step");
/// ```
#[doc(alias("nvtxRangePush"))]
#[inline]
pub fn range<'a>(event: impl Into<NvtxEvent<'a>>) -> NvtxRange {
    let begun = is_profiled();
    if begun {
        show::<c_int>(&event.into(), RANGE_PUSH_A, RANGE_PUSH_EX);
    }
    NvtxRange { begun, _not_send: PhantomData }
}

/// A range that may end on another thread than it began on, and may overlap others, such as an asynchronous
/// task. Ends when it is dropped. Made by [`process_range`].
#[must_use = "dropping it ends the range"]
#[derive(Debug)]
pub struct NvtxProcessRange(Option<u64>);

/// Begins a range of the process with a name or an [`NvtxEvent`]: `nvtxRangeStartA`, `nvtxRangeStartEx`. The
/// name ends at a NUL.
///
/// ```no_run
/// let epoch = cuda_core::nvtx::process_range("epoch");
/// std::thread::spawn(move || drop(epoch)); // ends there
/// ```
#[doc(alias("nvtxRangeStart", "nvtxRangeEnd"))]
#[inline]
pub fn process_range<'a>(event: impl Into<NvtxEvent<'a>>) -> NvtxProcessRange {
    NvtxProcessRange(if is_profiled() { start(&event.into()) } else { None })
}

impl Drop for NvtxProcessRange {
    #[inline]
    fn drop(&mut self) {
        if let Some(range) = self.0 {
            end(range);
        }
    }
}

/// Runs `operation` in a [`range`] of its own with a name or an [`NvtxEvent`].
///
/// ```no_run
/// # use cuda_core::nvtx;
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let buffer = nvtx::ranged("weights", || stream.alloc_zeroed::<f32>(1 << 20))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("nvtxRangePush", "annotate"))]
#[inline]
pub fn ranged<'a, R>(event: impl Into<NvtxEvent<'a>>, operation: impl FnOnce() -> R) -> R {
    let _range = range(event);
    operation()
}

/// Marks this moment with a name or an [`NvtxEvent`]: `nvtxMarkA`, `nvtxMarkEx`. The name ends at a NUL.
///
/// ```no_run
/// cuda_core::nvtx::mark("the first batch has arrived");
/// ```
#[doc(alias("nvtxMark"))]
#[inline]
pub fn mark<'a>(event: impl Into<NvtxEvent<'a>>) {
    if is_profiled() {
        show::<()>(&event.into(), MARK_A, MARK_EX);
    }
}

/// Names a [category](NvtxEvent::category) of events: `nvtxNameCategoryA`.
///
/// ```no_run
/// cuda_core::nvtx::name_category(1, "training");
/// ```
#[doc(alias("nvtxNameCategory"))]
pub fn name_category(category: u32, name: &str) {
    if is_profiled() {
        show_name(CORE, NAME_CATEGORY_A, category, name);
    }
}

/// Names a stream: `nvtxNameCuStreamA`.
pub(crate) fn name_stream(stream: CUstream, name: &str) {
    if is_profiled() {
        show_name(CUDA, NAME_STREAM_A, stream, name);
    }
}

impl Drop for NvtxRange {
    #[inline]
    fn drop(&mut self) {
        if self.begun {
            pop();
        }
    }
}

/// Whether a tool takes events. Loads the tool on the first call.
#[inline]
fn is_profiled() -> bool {
    static TOOL: LoadOnce<bool> = LoadOnce::new();
    // No value in a child that was forked while a thread of its parent loaded the tool.
    TOOL.get_or_init(load).copied().unwrap_or(false)
}

/// The entry of the tool's library, `InitializeInjectionNvtx2`: returns whether it works.
type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
type GetExportTable = extern "C" fn(u32) -> *const c_void;

fn load() -> bool {
    // The user who starts a privileged program must not choose the code that it runs.
    let named = env::var_os("NVTX_INJECTION64_PATH").filter(|_| !os::is_privileged());
    // SAFETY: the initialisers belong to the tool that was chosen by the user who started the program.
    let library = named.and_then(|file| unsafe { os::Library::open(&file) }.ok());
    let entry = library.map(|library| library.symbol(c"InitializeInjectionNvtx2"));
    // SAFETY: a function of this signature, by the protocol of NVTX; the library is never unloaded.
    entry.and_then(|entry| unsafe { library::function(entry) }).is_some_and(attach)
}

/// Lets the tool set the functions that it wants called.
fn attach(initialize: Initialize) -> bool {
    // SAFETY: the tool's entry, called with the function that it expects.
    unsafe { initialize(export_table) != 0 }
}

/// The numbers of functions of each module of NVTX 3: core, CUDA, OpenCL, the runtime, domains,
/// synchronisation. The first entry of each module is unused.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;
const CORE: usize = 1;
const MARK_EX: usize = 1;
const MARK_A: usize = 2;
const RANGE_START_EX: usize = 4;
const RANGE_START_A: usize = 5;
const RANGE_END: usize = 7;
const RANGE_PUSH_EX: usize = 8;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
const NAME_CATEGORY_A: usize = 12;
const CUDA: usize = 2;
const NAME_STREAM_A: usize = 5;

/// The tool's functions by module: a tool expects room for all, and sets those that it has.
// INVARIANT: entries of `CORE` and `CUDA` that are not null are functions with NVTX's signature for their
// index.
static FUNCTIONS: [[AtomicPtr<c_void>; MOST]; SIZES.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; SIZES.len()];

/// Pointers to the functions of one module.
struct FunctionTable([*const AtomicPtr<c_void>; MOST]);

// SAFETY: the pointers are to statics, whose values are atomic.
unsafe impl Sync for FunctionTable {}

static TABLES: [FunctionTable; SIZES.len()] = {
    let mut tables = [const { FunctionTable([ptr::null(); MOST]) }; SIZES.len()];
    let mut module = 0;
    while module < SIZES.len() {
        let mut at = 1;
        while at < SIZES[module] {
            tables[module].0[at] = &raw const FUNCTIONS[module][at];
            at += 1;
        }
        module += 1;
    }
    tables
};

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct ExportedCallbacks {
    size: usize,
    module_functions:
        unsafe extern "C" fn(c_int, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct ExportedVersion {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACKS: ExportedCallbacks =
    ExportedCallbacks { size: size_of::<ExportedCallbacks>(), module_functions };

static VERSION: ExportedVersion = ExportedVersion {
    size: size_of::<ExportedVersion>(),
    version: 3,
    reserved: 0,
    set_tool_version: ignore,
};

extern "C" fn ignore(_: u32) {}

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => ptr::null(),
    }
}

/// Stores the table of a module and the table's length; returns whether the module exists.
///
/// # Safety
/// Each pointer is null or valid for a write.
unsafe extern "C" fn module_functions(
    module: c_int,
    table: *mut *const *const AtomicPtr<c_void>,
    size: *mut c_uint,
) -> c_int {
    let module = usize::try_from(module).unwrap_or(0);
    let Some(functions) = TABLES.get(module).filter(|_| SIZES[module.min(SIZES.len() - 1)] > 0)
    else {
        return 0;
    };
    if !table.is_null() {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { table.write(functions.0.as_ptr()) };
    }
    if !size.is_null() {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { size.write(SIZES[module] as c_uint) };
    }
    1
}

/// Returns the function at index `at` of the module's table, if the tool has set it.
///
/// # Safety
/// `F` is the type of the function, as NVTX declares it.
unsafe fn function<F: Copy>(module: usize, at: usize) -> Option<F> {
    let address = FUNCTIONS[module][at].load(Ordering::Acquire);
    // SAFETY: null or a function of that type, by the caller's promise and the invariant.
    unsafe { library::function(address) }
}

/// Calls the function that takes a name or, for an event with attributes, the one that takes those. `R` is
/// the result type of both.
#[cold]
fn show<R>(event: &NvtxEvent<'_>, plain: usize, extended: usize) -> Option<R> {
    type Plain<R> = unsafe extern "C" fn(*const c_char) -> R;
    type Extended<R> = unsafe extern "C" fn(*const EventAttributes) -> R;
    let name = c_name(event.get_name());
    if event.is_plain() {
        // SAFETY: the functions that are given as `plain` are of this type.
        let called = unsafe { function::<Plain<R>>(CORE, plain) };
        // SAFETY: a C string that outlives the call.
        return called.map(|called| unsafe { called(name.as_ptr()) });
    }
    // SAFETY: the functions that are given as `extended` are of this type.
    let called = unsafe { function::<Extended<R>>(CORE, extended) };
    // SAFETY: attributes with a C string, which outlive the call.
    called.map(|called| unsafe { called(&event.attributes(&name)) })
}

/// Names a category, or a stream that the caller keeps alive.
#[cold]
fn show_name<N>(module: usize, function: usize, named: N, name: &str) {
    type Name<N> = unsafe extern "C" fn(N, *const c_char);
    // SAFETY: the functions that are given here are of this type.
    if let Some(called) = unsafe { self::function::<Name<N>>(module, function) } {
        // SAFETY: a C string that outlives the call; a handle is live.
        unsafe { called(named, c_name(name).as_ptr()) };
    }
}

#[cold]
fn start(event: &NvtxEvent<'_>) -> Option<u64> {
    show(event, RANGE_START_A, RANGE_START_EX)
}

#[cold]
fn pop() {
    // SAFETY: this is its type.
    if let Some(called) = unsafe { function::<unsafe extern "C" fn() -> c_int>(CORE, RANGE_POP) } {
        // SAFETY: it takes nothing.
        unsafe { called() };
    }
}

#[cold]
fn end(range: u64) {
    // SAFETY: this is its type.
    if let Some(called) = unsafe { function::<unsafe extern "C" fn(u64)>(CORE, RANGE_END) } {
        // SAFETY: a range that the tool has begun, ended once.
        unsafe { called(range) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::CStr;

    use super::*;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn note(what: &str, name: *const c_char) {
        // SAFETY: a C string, for the length of the call.
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
        SEEN.with_borrow_mut(|seen| seen.push(format!("{what} {name}")));
    }

    unsafe extern "C" fn push_a(name: *const c_char) -> c_int {
        note("push", name);
        0
    }

    unsafe extern "C" fn mark_a(name: *const c_char) {
        note("mark", name);
    }

    unsafe extern "C" fn start_a(name: *const c_char) -> u64 {
        note("start", name);
        41
    }

    unsafe extern "C" fn end_one(range: u64) {
        note(&format!("end {range}"), c"".as_ptr());
    }

    unsafe extern "C" fn with_attributes<R: Default>(event: *const EventAttributes) -> R {
        // SAFETY: attributes, for the length of the call.
        let event = unsafe { &*event };
        let EventAttributes { category, color, color_type, payload, payload_type, .. } = *event;
        assert_eq!((event.version, event.size, event.message_type), (3, 48, 1));
        let more = format!("{category} {color_type}:{color:x} {payload_type}:{payload:x}");
        note(&more, event.message);
        R::default()
    }

    unsafe extern "C" fn name_category_a(category: u32, name: *const c_char) {
        note(&format!("category {category}"), name);
    }

    unsafe extern "C" fn name_stream_a(stream: CUstream, name: *const c_char) {
        note(&format!("stream {}", stream.addr()), name);
    }

    unsafe extern "C" fn pop_one() -> c_int {
        note("pop", c"".as_ptr());
        0
    }

    /// A tool that asks for every table, and writes to each entry as tools do.
    unsafe extern "C" fn tool(get: GetExportTable) -> c_int {
        assert!(get(0).is_null() && get(2).is_null() && get(4).is_null());
        // SAFETY: the table of this id.
        let version = unsafe { &*get(3).cast::<ExportedVersion>() };
        assert_eq!((version.size, version.version), (24, 3));
        // SAFETY: the table of this id.
        let callbacks = unsafe { &*get(1).cast::<ExportedCallbacks>() };
        assert_eq!(callbacks.size, 16);
        let own: [(usize, usize, *const ()); 10] = [
            (CORE, MARK_EX, with_attributes::<()> as *const ()),
            (CORE, MARK_A, mark_a as *const ()),
            (CORE, RANGE_START_EX, with_attributes::<u64> as *const ()),
            (CORE, RANGE_START_A, start_a as *const ()),
            (CORE, RANGE_END, end_one as *const ()),
            (CORE, RANGE_PUSH_EX, with_attributes::<c_int> as *const ()),
            (CORE, RANGE_PUSH_A, push_a as *const ()),
            (CORE, RANGE_POP, pop_one as *const ()),
            (CORE, NAME_CATEGORY_A, name_category_a as *const ()),
            (CUDA, NAME_STREAM_A, name_stream_a as *const ()),
        ];
        for module in -1..9 {
            let (mut table, mut size) = (ptr::null(), 0);
            // SAFETY: both are locals.
            let found = unsafe { (callbacks.module_functions)(module, &mut table, &mut size) };
            assert_eq!(found == 1, (1..7).contains(&module), "module {module}");
            for at in 0..size as usize {
                // SAFETY: within the table.
                let entry = unsafe { table.wrapping_add(at).read() };
                assert_eq!(entry.is_null(), at == 0);
                let wanted = own.iter().find(|it| module == it.0 as c_int && it.1 == at);
                if let Some((_, _, function)) = wanted {
                    // SAFETY: an entry of the table.
                    unsafe { &*entry }.store(function.cast_mut().cast(), Ordering::Release);
                }
            }
        }
        1
    }

    #[test]
    fn a_tool_sees_ranges_and_marks() {
        // Without a tool nothing is loaded, and nothing is called.
        drop(range("unseen"));
        drop(process_range("unseen"));
        mark("unseen");
        assert_eq!(ranged("unseen", || 7), 7);
        assert!(attach(tool));
        let push = |event: NvtxEvent<'_>| show::<c_int>(&event, RANGE_PUSH_A, RANGE_PUSH_EX);
        let mark = |event: NvtxEvent<'_>| show::<()>(&event, MARK_A, MARK_EX);
        push("outer".into());
        mark("a\0b".into());
        pop();
        let seen = SEEN.with_borrow_mut(std::mem::take);
        assert_eq!(seen, ["push outer", "mark a", "pop "]);
        let plain = NvtxProcessRange(start(&"outer".into()));
        drop(NvtxProcessRange(start(&NvtxEvent::new("inner").category(2))));
        drop(plain);
        let seen = SEEN.with_borrow_mut(std::mem::take);
        assert_eq!(seen, ["start outer", "2 0:0 0:0 inner", "end 0 ", "end 41 "]);
        push(NvtxEvent::new("colourful").color(0xff00_ff00).category(7));
        mark(NvtxEvent::new("counted").payload(16u64));
        mark(NvtxEvent::new("below").payload(-1i64));
        mark(NvtxEvent::new("half").payload(0.5));
        show_name(CORE, NAME_CATEGORY_A, 7u32, "seven");
        show_name::<CUstream>(CUDA, NAME_STREAM_A, ptr::without_provenance_mut(40), "uploads");
        let seen = SEEN.with_borrow_mut(std::mem::take);
        let expected = [
            "7 1:ff00ff00 0:0 colourful",
            "0 0:0 1:10 counted",
            "0 0:0 2:ffffffffffffffff below",
            "0 0:0 3:3fe0000000000000 half",
            "category 7 seven",
            "stream 40 uploads",
        ];
        assert_eq!(seen, expected);
    }
}
