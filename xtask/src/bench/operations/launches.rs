//! Launches and host functions.

use std::ffi::c_void;
use std::ptr;

use cuda_core::{DeviceBuffer, Function, Module};
use cuda_sys::{CUresult, cuLaunchHostFunc, cuLaunchKernel, cuStreamSynchronize};

use super::{BATCH, SMALL};
use crate::bench::measure::Measured;
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::first_error;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("launch, empty kernel", empty),
        Operation::new("launch, 6 buffers", six_buffers),
        Operation::new("host function + wait", host_function)
            .without_goal("the library records an event first, the raw calls do not"),
    ]
}

/// Of `xtask/bench/cudarc` too.
const PTX: &str = include_str!("../../../bench/kernels.ptx");

pub(super) fn kernel(fixture: &Fixture, name: &str) -> anyhow::Result<Function> {
    for name in ["bench_nothing", "bench_two", "bench_six", "bench_slow"] {
        cuda_sim::register_kernel(name, |_| Vec::new(), |_, _| Ok(()));
    }
    Ok(Module::from_ptx(&fixture.context, PTX)?.function(name)?)
}

/// `cuLaunchKernel` of one block of 32 threads.
fn raw_launch(fixture: &Fixture, function: &Function, arguments: &mut [*mut c_void]) -> CUresult {
    let stream = fixture.raw_stream();
    let arguments = arguments.as_mut_ptr();
    let extra = ptr::null_mut();
    // SAFETY: function and stream are live; there is one pointer per parameter; the kernel touches
    // nothing.
    unsafe { cuLaunchKernel(function.as_raw(), 1, 1, 1, 32, 1, 1, 0, stream, arguments, extra) }
}

fn empty(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_nothing")?;
    fixture.pair(
        BATCH,
        // SAFETY: no parameter.
        || unsafe { fixture.stream.kernel(&function).block(32).launch() },
        || raw_launch(fixture, &function, &mut []),
    )
}

fn six_buffers(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let stream = &fixture.stream;
    let mut buffers = (0..6)
        .map(|_| stream.alloc_zeroed::<u8>(SMALL))
        .collect::<cuda_core::Result<Vec<DeviceBuffer<u8>>>>()?;
    let mut addresses: Vec<u64> = buffers.iter().map(|buffer| buffer.as_raw()).collect();
    fixture.pair(
        BATCH,
        || {
            let mut launch = stream.kernel(&function).block(32);
            for (index, buffer) in buffers.iter_mut().enumerate() {
                if index < 3 {
                    launch = launch.arg(&*buffer);
                } else {
                    launch = launch.arg(buffer);
                }
            }
            // SAFETY: six addresses, which the kernel ignores.
            unsafe { launch.launch() }
        },
        || {
            let mut arguments = [ptr::null_mut(); 6];
            for (argument, address) in arguments.iter_mut().zip(&mut addresses) {
                *argument = ptr::from_mut(address).cast();
            }
            raw_launch(fixture, &function, &mut arguments)
        },
    )
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn host_function(fixture: &Fixture) -> anyhow::Result<Measured> {
    fixture.waited(
        301,
        20,
        || fixture.stream.launch_host_func(|| {}),
        || {
            let raw = fixture.raw_stream();
            // SAFETY: the stream is live; the function takes any data.
            let launched = unsafe { cuLaunchHostFunc(raw, Some(nothing), ptr::null_mut()) };
            // SAFETY: the stream is live.
            first_error([launched, unsafe { cuStreamSynchronize(raw) }])
        },
    )
}
