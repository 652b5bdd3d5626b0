//! The CUDA runtime API, where a libcudart can be loaded: inside and around guards.

use std::env;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::process::Command;
use std::ptr;

use cuda_core::{Device, DeviceBuffer, PointerAttributes, Result};
use cuda_sys::CUdeviceptr;
use support::{context, gpu_test};

use crate::stack;

// Every release declares them so; `cudaError_t` is an int.
type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A loaded libcudart.
pub(crate) struct Runtime {
    get_device: GetDevice,
    set_device: SetDevice,
    malloc: Malloc,
    free: Free,
}

impl Runtime {
    /// Loads `CUDA_TESTS_LIBCUDART`, or what the system finds under the usual names.
    ///
    /// # Errors
    /// Why there is none.
    #[cfg(all(unix, not(miri)))]
    pub(crate) fn load() -> Result<Self, String> {
        use std::ffi::{CStr, CString};
        use std::mem::transmute;

        use support::Driver;

        if Driver::selected() != Driver::Loaded || env::var_os("CUDA_SYS_LIBRARY").is_some() {
            return Err("the runtime API would load another driver than the one under test".into());
        }
        let names = match env::var("CUDA_TESTS_LIBCUDART") {
            Ok(path) => vec![path],
            Err(_) => ["libcudart.so.13", "libcudart.so.12", "libcudart.so"]
                .map(String::from)
                .to_vec(),
        };
        for name in &names {
            let name = CString::new(name.as_str()).map_err(|error| error.to_string())?;
            // SAFETY: a NUL-terminated name; the constructors of libcudart only set it up.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                continue;
            }
            let find = |symbol: &CStr| {
                // SAFETY: the library is open and stays so.
                let address = unsafe { libc::dlsym(library, symbol.as_ptr()) };
                if address.is_null() {
                    return Err(format!("{name:?} has no {symbol:?}"));
                }
                Ok(address)
            };
            let get_device = find(c"cudaGetDevice")?;
            let set_device = find(c"cudaSetDevice")?;
            let malloc = find(c"cudaMalloc")?;
            let free = find(c"cudaFree")?;
            return Ok(Self {
                // SAFETY: as declared, by the note on these types.
                get_device: unsafe { transmute::<*mut c_void, GetDevice>(get_device) },
                // SAFETY: as declared, by the note on these types.
                set_device: unsafe { transmute::<*mut c_void, SetDevice>(set_device) },
                // SAFETY: as declared, by the note on these types.
                malloc: unsafe { transmute::<*mut c_void, Malloc>(malloc) },
                // SAFETY: as declared, by the note on these types.
                free: unsafe { transmute::<*mut c_void, Free>(free) },
            });
        }
        Err(format!("none of {names:?} can be loaded"))
    }

    /// There is no library to load.
    #[cfg(not(all(unix, not(miri))))]
    pub(crate) fn load() -> Result<Self, String> {
        Err("no dlopen here".into())
    }

    /// The ordinal of the device that the runtime API would use on this thread.
    #[track_caller]
    pub(crate) fn device(&self) -> u32 {
        let mut device = -1;
        // SAFETY: the pointer is valid for the one `int` that the call writes.
        let code = unsafe { (self.get_device)(&mut device) };
        assert_eq!(code, 0, "cudaGetDevice");
        u32::try_from(device).expect("an ordinal")
    }

    /// `cudaSetDevice`.
    #[track_caller]
    pub(crate) fn set_device(&self, ordinal: u32) {
        let ordinal = c_int::try_from(ordinal).expect("an ordinal fits an int");
        // SAFETY: takes no pointer; the runtime checks the ordinal.
        let code = unsafe { (self.set_device)(ordinal) };
        assert_eq!(code, 0, "cudaSetDevice({ordinal})");
    }

    /// `cudaSetDevice`, and a call that makes the device's primary context current also where the
    /// runtime is of before CUDA 12 and puts that off.
    #[track_caller]
    fn use_device(&self, ordinal: u32) {
        self.set_device(ordinal);
        self.initialise();
    }

    /// `cudaFree(NULL)`, which does nothing but what every call of the runtime does first.
    #[track_caller]
    fn initialise(&self) {
        // SAFETY: null is documented to be no memory.
        let code = unsafe { (self.free)(ptr::null_mut()) };
        assert_eq!(code, 0, "cudaFree(NULL)");
    }

    /// The ordinal of the device that memory from `cudaMalloc` lands on.
    #[track_caller]
    fn lands_on(&self) -> u32 {
        let mut memory = ptr::null_mut();
        // SAFETY: the function writes one pointer, to a local that outlives the call.
        let code = unsafe { (self.malloc)(&mut memory, 256) };
        assert_eq!(code, 0, "cudaMalloc");
        let device = ordinal_of(memory.addr() as CUdeviceptr);
        // SAFETY: from the call above; nothing uses it.
        let code = unsafe { (self.free)(memory) };
        assert_eq!(code, 0, "cudaFree");
        device
    }
}

#[track_caller]
fn ordinal_of(address: CUdeviceptr) -> u32 {
    let attributes = PointerAttributes::of_device(address).expect("the driver looks it up");
    attributes.device.expect("memory that it knows").ordinal()
}

/// Runs `body` if there is a libcudart, else says on the real stderr, past libtest, that the test
/// named asked it nothing.
fn with_runtime(test: &str, body: impl FnOnce(&Runtime) -> Result<()>) -> Result<()> {
    match Runtime::load() {
        Ok(runtime) => body(&runtime),
        Err(reason) => {
            // A closed stderr leaves nobody to tell.
            let _ = writeln!(
                std::io::stderr(),
                "{test}: libcudart was not asked: {reason}"
            );
            Ok(())
        }
    }
}

/// Whether the guard's device is the runtime's, and where memory of both lands.
#[track_caller]
fn both_on(runtime: &Runtime, ordinal: u32) -> Result<()> {
    assert_eq!(runtime.device(), ordinal);
    assert_eq!(context::current(), context::primary(ordinal));
    assert_eq!(runtime.lands_on(), ordinal);
    let here = cuda_core::Context::current()?.expect("the guard's");
    let ours: DeviceBuffer<u8> = here.alloc(256)?;
    assert_eq!(ordinal_of(ours.as_raw()), ordinal);
    Ok(())
}

gpu_test! {
    needs 2, real;
    fn a08_runtime_before_inside_after() -> Result<()> {
        with_runtime("a08_runtime_before_inside_after", |runtime| {
            let (d0, d1) = (Device::get(0)?, Device::get(1)?);
            // What is current here is the runtime's own doing.
            for (base, outer, inner) in [(0, d1, d0), (1, d0, d1)] {
                stack::clear();
                runtime.use_device(base);
                both_on(runtime, base)?;
                let outer_guard = outer.guard()?;
                both_on(runtime, outer.ordinal())?;
                let inner_guard = inner.guard()?;
                both_on(runtime, inner.ordinal())?;
                drop(inner_guard);
                both_on(runtime, outer.ordinal())?;
                drop(outer_guard);
                both_on(runtime, base)?;
            }
            stack::clear();
            Ok(())
        })
    }
}

gpu_test! {
    needs 2, real;
    fn a08_runtime_set_inside_is_undone() -> Result<()> {
        with_runtime("a08_runtime_set_inside_is_undone", |runtime| {
            let (p0, d1) = (context::primary(0), Device::get(1)?);
            let other = context::Foreign::create(0);
            // The second is the harder: the runtime sets the same device's primary context. The
            // third has to become the absence of any.
            for before in [p0, other.handle(), ptr::null_mut()] {
                if !before.is_null() {
                    context::push(before);
                }
                let guard = d1.guard()?;
                runtime.use_device(0);
                assert_eq!(context::current(), p0);
                both_on(runtime, 0)?;
                guard.restore()?;
                assert_eq!(context::current(), before);
                if !before.is_null() {
                    assert_eq!(runtime.device(), 0, "the device of what is current");
                    assert_eq!(context::pop(), Some(before));
                }
                assert_eq!(context::pop(), None, "entries below it");
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 2, real;
    fn a08_runtime_set_between_nested_guards() -> Result<()> {
        with_runtime("a08_runtime_set_between_nested_guards", |runtime| {
            let (d0, p1) = (Device::get(0)?, context::primary(1));
            let other = context::Foreign::create(1);
            for before in [other.handle(), ptr::null_mut()] {
                if !before.is_null() {
                    context::push(before);
                }
                let outer = d0.guard()?;
                runtime.use_device(1);
                let inner = d0.guard()?;
                both_on(runtime, 0)?;
                drop(inner);
                // What the runtime set is what was current before the inner guard.
                assert_eq!(context::current(), p1);
                both_on(runtime, 1)?;
                drop(outer);
                assert_eq!(context::current(), before);
                if !before.is_null() {
                    assert_eq!(context::pop(), Some(before));
                }
                assert_eq!(context::pop(), None, "entries below it");
            }
            Ok(())
        })
    }
}

/// Set in the process that [`a08_runtime_initialises_inside`] starts.
const ALONE: &str = "CUDA_TESTS_RUNTIME_ALONE";

gpu_test! {
    needs 2, real;
    fn a08_runtime_initialises_inside() -> Result<()> {
        with_runtime("a08_runtime_initialises_inside", |runtime| {
            // Only in a fresh process has no device a primary context.
            if env::var_os(ALONE).is_none() {
                let path = concat!(module_path!(), "::needs_2");
                let (_, test) = path.split_once("::").expect("libtest does not name the crate");
                let output = Command::new(env::current_exe().expect("the test program's path"))
                    .args(["--include-ignored", "--nocapture", "--exact", test])
                    .env(ALONE, "1")
                    .output()
                    .expect("the test program starts");
                let (printed, told) = (
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr),
                );
                let passed = output.status.success() && printed.contains("1 passed");
                assert!(passed, "{}\n{printed}\n{told}", output.status);
                return Ok(());
            }
            let (d0, d1) = (Device::get(0)?, Device::get(1)?);
            assert!(!d0.is_primary_active()? && !d1.is_primary_active()?);
            let guard = d0.guard()?;
            // By the device that the guard made current, through a context of ours.
            runtime.initialise();
            assert_eq!((runtime.device(), runtime.lands_on()), (0, 0));
            assert!(!d1.is_primary_active()?);
            // And by another, whose context is the runtime's.
            runtime.use_device(1);
            assert!(d1.is_primary_active()?);
            assert_eq!(context::current(), context::primary(1));
            assert_eq!((runtime.device(), runtime.lands_on()), (1, 1));
            let inner = d1.guard()?;
            assert_eq!(d1.context()?.as_raw(), context::primary(1), "one for both of us");
            both_on(runtime, 1)?;
            drop(inner);
            both_on(runtime, 1)?;
            guard.restore()?;
            assert!(context::current().is_null());
            assert_eq!(context::pop(), None);
            Ok(())
        })
    }
}
