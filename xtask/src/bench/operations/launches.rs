//! Launches and host functions.

use std::ffi::c_void;
use std::{array, ptr};

use cuda_core::{AnyThread, DeviceBuffer, Function, Launch, Module, Stream};
use cuda_sys::{self as sys, CUdeviceptr, CUfunction, CUresult, CUstream};

use super::{BATCH, SMALL};
use crate::bench::raw::wait;
use crate::bench::{Fixture, Measured, Operation};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("launch, empty kernel", |fixture| launch(fixture, "bench_nothing", 0)),
        Operation::new("launch, 6 buffers", |fixture| launch(fixture, "bench_six", 6)),
        Operation::new("host function + wait", host_function)
            .without_goal("the library records an event first, the raw calls do not"),
    ]
}

/// `xtask/bench/cudarc` uses this file, too.
const PTX: &str = include_str!("../../../bench/kernels.ptx");

pub(super) fn function(fixture: &Fixture, name: &str) -> anyhow::Result<Function> {
    for name in ["bench_nothing", "bench_two", "bench_six", "bench_part", "bench_sum"] {
        cuda_sim::register_kernel(name, |_| Vec::new(), |_, _| Ok(()));
    }
    Ok(Module::from_ptx(&fixture.context, PTX)?.function(name)?)
}

/// A kernel that ignores its parameters, and a buffer for each.
pub(super) struct Kernel {
    pub(super) function: Function,
    pub(super) buffers: Vec<DeviceBuffer<u8>>,
}

impl Kernel {
    pub(super) fn new(fixture: &Fixture, name: &str, buffers: usize) -> anyhow::Result<Self> {
        let zeroed = |_| fixture.stream.alloc_zeroed::<u8>(SMALL);
        let buffers = (0..buffers).map(zeroed).collect::<cuda_core::Result<_>>()?;
        Ok(Self { function: function(fixture, name)?, buffers })
    }

    /// Returns a launch that reads the first half of the buffers and writes the others.
    pub(super) fn on<'a>(&'a mut self, stream: &'a Stream) -> Launch<'a, AnyThread> {
        on(stream, &self.function, &mut self.buffers)
    }

    pub(super) fn launch(&mut self, stream: &Stream) -> cuda_core::Result<()> {
        // SAFETY: as many addresses as there are parameters, which the kernel ignores.
        unsafe { self.on(stream).launch() }
    }

    /// The same launch by raw calls.
    pub(super) fn raw(&self) -> RawKernel {
        let address = |at| self.buffers.get(at).map_or(0, DeviceBuffer::as_raw);
        RawKernel { function: self.function.as_raw(), addresses: array::from_fn(address) }
    }
}

/// Returns a launch that reads the first half of these buffers and writes the others.
pub(super) fn on<'a>(
    stream: &'a Stream,
    function: &'a Function,
    buffers: &'a mut [DeviceBuffer<u8>],
) -> Launch<'a, AnyThread> {
    let (read, written) = buffers.split_at_mut(buffers.len() / 2);
    let launch = stream.kernel(function).block(32);
    let launch = read.iter().fold(launch, Launch::arg);
    written.iter_mut().fold(launch, Launch::arg)
}

/// A kernel for raw launches.
pub(super) struct RawKernel {
    pub(super) function: CUfunction,
    addresses: [CUdeviceptr; 6],
}

impl RawKernel {
    /// A pointer to each argument, and possibly more.
    pub(super) fn arguments(&self) -> [*mut c_void; 6] {
        self.addresses.each_ref().map(|address| ptr::from_ref(address).cast_mut().cast())
    }

    /// Calls `cuLaunchKernel` with one block of 32 threads.
    pub(super) fn launch(&self, stream: CUstream) -> CUresult {
        let mut arguments = self.arguments();
        let (function, arguments, extra) = (self.function, arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: function and stream are live; there is a pointer for each parameter; the kernel accesses
        // nothing.
        unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, extra) }
    }
}

fn launch(fixture: &Fixture, name: &str, buffers: usize) -> anyhow::Result<Measured> {
    let mut kernel = Kernel::new(fixture, name, buffers)?;
    let raw = kernel.raw();
    let ours = || kernel.launch(&fixture.stream);
    fixture.pair(BATCH, ours, || raw.launch(fixture.raw_stream()))
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn host_function(fixture: &Fixture) -> anyhow::Result<Measured> {
    let theirs = || {
        let stream = fixture.raw_stream();
        // SAFETY: the stream is live; the function takes any data.
        let launched = unsafe { sys::cuLaunchHostFunc(stream, Some(nothing), ptr::null_mut()) };
        wait(launched, &fixture.raw)
    };
    fixture.waited(301, 20, || fixture.stream.launch_host_func(|| {}), theirs)
}
