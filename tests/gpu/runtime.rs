//! The CUDA runtime API inside and around guards.

use std::env;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::process::Command;
use std::ptr;

use cuda_core::{Device, DeviceBuffer, PointerAttributes, Result, runtime_version};
use cuda_sys::{CUdeviceptr, os};
use support::{context, gpu_test};

use crate::guards::device;
use crate::stack;

// All releases have these signatures; `cudaError_t` is an int.
type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

/// A loaded libcudart, for tests tagged `runtime`.
pub(crate) struct Runtime {
    get_device: GetDevice,
    set_device: SetDevice,
    malloc: Malloc,
    free: Free,
    get_version: GetVersion,
}

impl Runtime {
    /// Loads the library that `CUDA_TESTS_LIBCUDART` names, which the runner sets for every row of its
    /// matrix.
    #[track_caller]
    pub(crate) fn load() -> Self {
        let Some(name) = env::var_os("CUDA_TESTS_LIBCUDART").filter(|name| !name.is_empty()) else {
            panic!(
                "needs libcudart: set CUDA_TESTS_LIBCUDART to its name, such as libcudart.so.13, \
                 or to its path"
            );
        };
        assert!(
            env::var_os("CUDA_SYS_LIBRARY").is_none(),
            "libcudart would load another driver than CUDA_SYS_LIBRARY names: unset it"
        );
        // SAFETY: the initialisers of libcudart only set it up.
        let library = match unsafe { os::Library::open(&name) } {
            Ok(library) => library,
            Err(error) => panic!("CUDA_TESTS_LIBCUDART names no libcudart: {error}"),
        };
        let find = |symbol: &CStr| {
            let address = library.symbol(symbol);
            assert!(!address.is_null(), "{name:?} has no {symbol:?}");
            address
        };
        Self {
            // SAFETY: as declared, by the note on these types.
            get_device: unsafe { transmute::<*const c_void, GetDevice>(find(c"cudaGetDevice")) },
            // SAFETY: as declared, by the note on these types.
            set_device: unsafe { transmute::<*const c_void, SetDevice>(find(c"cudaSetDevice")) },
            // SAFETY: as declared, by the note on these types.
            malloc: unsafe { transmute::<*const c_void, Malloc>(find(c"cudaMalloc")) },
            // SAFETY: as declared, by the note on these types.
            free: unsafe { transmute::<*const c_void, Free>(find(c"cudaFree")) },
            // SAFETY: as declared, by the note on these types.
            get_version: unsafe {
                transmute::<*const c_void, GetVersion>(find(c"cudaRuntimeGetVersion"))
            },
        }
    }

    /// `cudaRuntimeGetVersion`.
    #[track_caller]
    fn version(&self) -> u32 {
        let mut version = -1;
        // SAFETY: the pointer is valid for the one `int` that the call writes.
        let code = unsafe { (self.get_version)(&mut version) };
        assert_eq!(code, 0, "cudaRuntimeGetVersion");
        u32::try_from(version).expect("a version")
    }

    /// Returns the ordinal of the device that the runtime API would use on this thread.
    #[track_caller]
    pub(crate) fn device(&self) -> u32 {
        let mut device = -1;
        // SAFETY: the pointer is valid for the one `int` that the call writes.
        let code = unsafe { (self.get_device)(&mut device) };
        assert_eq!(code, 0, "cudaGetDevice");
        u32::try_from(device).expect("an ordinal")
    }

    /// Calls `cudaSetDevice`.
    #[track_caller]
    pub(crate) fn set_device(&self, ordinal: u32) {
        let ordinal = c_int::try_from(ordinal).expect("an ordinal fits an int");
        // SAFETY: takes no pointer; the runtime checks the ordinal.
        let code = unsafe { (self.set_device)(ordinal) };
        assert_eq!(code, 0, "cudaSetDevice({ordinal})");
    }

    /// Calls `cudaSetDevice`, and then a function that makes the device's primary context current even with a
    /// runtime before CUDA 12, which defers that.
    #[track_caller]
    fn use_device(&self, ordinal: u32) {
        self.set_device(ordinal);
        self.initialise();
    }

    /// Calls `cudaFree(NULL)`, which only initialises the runtime, like any of its calls.
    #[track_caller]
    fn initialise(&self) {
        // SAFETY: for null, the call is documented to have no effect.
        let code = unsafe { (self.free)(ptr::null_mut()) };
        assert_eq!(code, 0, "cudaFree(NULL)");
    }

    /// Returns the ordinal of the device on which `cudaMalloc` allocates.
    #[track_caller]
    fn lands_on(&self) -> u32 {
        let mut memory = ptr::null_mut();
        // SAFETY: the function writes one pointer, to a local that outlives the call.
        let code = unsafe { (self.malloc)(&mut memory, 256) };
        assert_eq!(code, 0, "cudaMalloc");
        let device = ordinal_of(memory.addr() as CUdeviceptr);
        // SAFETY: the memory is from the call above, and no code uses it.
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

/// Asserts that the guard's device is the runtime's, and that both allocate on it.
#[track_caller]
fn both_on(runtime: &Runtime, ordinal: u32) -> Result<()> {
    assert_eq!(runtime.device(), ordinal);
    assert_eq!(context::current(), context::primary(ordinal));
    assert_eq!(runtime.lands_on(), ordinal);
    let here = cuda_core::Context::current()?.expect("the guard's");
    let own: DeviceBuffer<u8> = here.alloc(256)?;
    assert_eq!(ordinal_of(own.as_raw()), ordinal);
    Ok(())
}

gpu_test! {
    needs 1, real, runtime;
    fn b09_runtime_version() {
        // The library queries the runtime that the process has loaded.
        let runtime = Runtime::load();
        let version = runtime.version();
        let found = runtime_version().expect("a libcudart is loaded");
        assert_eq!(1000 * found.major + 10 * found.minor, version - version % 10, "{found}");
        assert_eq!(runtime_version(), Some(found));
        assert_eq!(context::current(), ptr::null_mut(), "no context is made for it");
    }
}

gpu_test! {
    needs 2, real, runtime;
    fn a08_driver_and_runtime_agree() -> Result<()> {
        let runtime = Runtime::load();
        let ((d0, p0), (d1, p1)) = (device(0)?, device(1)?);
        stack::with(p0, || {
            assert_eq!(runtime.device(), 0);
            let guard = d1.enter()?;
            assert_eq!(runtime.device(), 1);
            // A context set inside the guard does not outlast it.
            runtime.set_device(0);
            assert_eq!((runtime.device(), context::current()), (0, p0));
            runtime.set_device(1);
            drop(guard);
            assert_eq!((runtime.device(), context::current()), (0, p0));

            // The guard restores a context set outside of it.
            runtime.set_device(1);
            let guard = d0.enter()?;
            assert_eq!((runtime.device(), context::current()), (0, p0));
            drop(guard);
            assert_eq!((runtime.device(), context::current()), (1, p1));
            runtime.set_device(0);
            Ok(())
        })
    }
}

gpu_test! {
    needs 2, real, runtime;
    fn a08_runtime_before_inside_after() -> Result<()> {
        let runtime = Runtime::load();
        let (d0, d1) = (Device::get(0)?, Device::get(1)?);
        // The runtime makes the context of `base` current.
        for (base, outer, inner) in [(0, d1, d0), (1, d0, d1)] {
            stack::clear();
            runtime.use_device(base);
            both_on(&runtime, base)?;
            let outer_guard = outer.enter()?;
            both_on(&runtime, outer.ordinal())?;
            let inner_guard = inner.enter()?;
            both_on(&runtime, inner.ordinal())?;
            drop(inner_guard);
            both_on(&runtime, outer.ordinal())?;
            drop(outer_guard);
            both_on(&runtime, base)?;
        }
        stack::clear();
        Ok(())
    }
}

gpu_test! {
    needs 2, real, runtime;
    fn a08_runtime_set_inside_is_undone() -> Result<()> {
        let runtime = Runtime::load();
        let (p0, d1) = (context::primary(0), Device::get(1)?);
        let other = context::Foreign::create(0);
        // The second case is harder: the runtime sets the same device's primary context. In the
        // third, no context must be current afterwards.
        for before in [p0, other.handle(), ptr::null_mut()] {
            if !before.is_null() {
                context::push(before);
            }
            let guard = d1.enter()?;
            runtime.use_device(0);
            assert_eq!(context::current(), p0);
            both_on(&runtime, 0)?;
            guard.restore()?;
            assert_eq!(context::current(), before);
            if !before.is_null() {
                assert_eq!(runtime.device(), 0, "the device of what is current");
                assert_eq!(context::pop(), Some(before));
            }
            assert_eq!(context::pop(), None, "entries below it");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, real, runtime;
    fn a08_runtime_set_between_nested_guards() -> Result<()> {
        let runtime = Runtime::load();
        let (d0, p1) = (Device::get(0)?, context::primary(1));
        let other = context::Foreign::create(1);
        for before in [other.handle(), ptr::null_mut()] {
            if !before.is_null() {
                context::push(before);
            }
            let outer = d0.enter()?;
            runtime.use_device(1);
            let inner = d0.enter()?;
            both_on(&runtime, 0)?;
            drop(inner);
            // The context that the runtime set was current before the inner guard.
            assert_eq!(context::current(), p1);
            both_on(&runtime, 1)?;
            drop(outer);
            assert_eq!(context::current(), before);
            if !before.is_null() {
                assert_eq!(context::pop(), Some(before));
            }
            assert_eq!(context::pop(), None, "entries below it");
        }
        Ok(())
    }
}

/// The variable that is set in the process that [`a08_runtime_initialises_inside`] starts.
const ALONE: &str = "CUDA_TESTS_RUNTIME_ALONE";

gpu_test! {
    needs 2, real, runtime;
    fn a08_runtime_initialises_inside() -> Result<()> {
        let runtime = Runtime::load();
        // Only in a new process does no device have a primary context yet.
        if env::var_os(ALONE).is_none() {
            let path = concat!(module_path!(), "::needs_2");
            let (_, test) = path.split_once("::").expect("libtest does not name the crate");
            let output = Command::new(env::current_exe().expect("the test program's path"))
                .args(["--include-ignored", "--nocapture", "--exact", test])
                .env(ALONE, "1")
                .output()
                .expect("the test program starts");
            let (printed, errors) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            let passed = output.status.success() && printed.contains("1 passed");
            assert!(passed, "{}\n{printed}\n{errors}", output.status);
            return Ok(());
        }
        let (d0, d1) = (Device::get(0)?, Device::get(1)?);
        assert!(!d0.primary_state()?.is_active && !d1.primary_state()?.is_active);
        let guard = d0.enter()?;
        // The runtime initialises on the device that the guard made current, in the library's context.
        runtime.initialise();
        assert_eq!((runtime.device(), runtime.lands_on()), (0, 0));
        assert!(!d1.primary_state()?.is_active);
        // It also initialises on another device, in a context that it creates.
        runtime.use_device(1);
        assert!(d1.primary_state()?.is_active);
        assert_eq!(context::current(), context::primary(1));
        assert_eq!((runtime.device(), runtime.lands_on()), (1, 1));
        let inner = d1.enter()?;
        assert_eq!(d1.context()?.as_raw(), context::primary(1), "the library and the runtime share it");
        both_on(&runtime, 1)?;
        drop(inner);
        both_on(&runtime, 1)?;
        guard.restore()?;
        assert!(context::current().is_null());
        assert_eq!(context::pop(), None);
        Ok(())
    }
}
