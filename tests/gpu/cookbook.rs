//! The Rust lines of docs/cookbook.md and docs/traces.md, which the build script writes to files, are compiled
//! here. The cookbook's programs run such lines.

#![allow(dead_code, unused_variables, unused_mut, clippy::undocumented_unsafe_blocks)]

use std::sync::Arc;

use cuda_core::adaptors::{Logging, Statistics};
use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray, FilterMode, Texture, TextureDescriptor};
use cuda_core::interop::{IpcEventHandle, IpcMemoryHandle};
use cuda_core::managed::{ManagedBuffer, MemoryLocation};
use cuda_core::nccl::{Ranks, Reduction};
use cuda_core::pinned::RegisterFlags;
use cuda_core::pools::PoolLimit;
use cuda_core::sys::CUstream;
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{
    Allocator, CachingPool, Condition, Context, ContextLocal, Device, DeviceBuffer, DeviceGroup,
    Event, EventFlags, Function, Graph, Launch, Module, PinnedBuffer, Registered, Result, Stream,
    kernel, nvrtc, nvtx, pod, with_allocator,
};

const LEN: usize = 1000;
const STEPS: usize = 3;

/// A function with these parameters whose body is the example of that number.
macro_rules! example {
    ($number:literal: $name:ident($($parameter:tt)*)) => {
        fn $name($($parameter)*) -> Result<()> {
            include!(concat!(env!("OUT_DIR"), "/cookbook_", $number, ".rs"))
        }
    };
}

const SHARE: usize = 100;
example! { 1: several_gpus() }

example! { 2: all_gpus_at_once(weights: Vec<f32>, batch: Vec<f32>, mut back: Vec<f32>) }

example! {
    3: sums(contexts: Vec<Context>, streams: Vec<Stream>, mut gradients: Vec<DeviceBuffer<f32>>)
}

example! {
    4: copies_beside_computation(
        [up, compute, down]: [Stream; 3], input: PinnedBuffer<f32>, mut output: PinnedBuffer<f32>
    )
}

struct Handle;

impl Handle {
    fn create() -> Result<Self> {
        Ok(Self)
    }

    fn use_it(&self) -> Result<()> {
        Ok(())
    }
}

fn other_library(_context: &Context) -> Result<()> {
    Ok(())
}

example! { 5: beside_other_libraries(one: Context, context: Context) }

fn gemm(_stream: CUstream, _a: u64, _b: u64, _c: u64) -> i32 {
    0
}

example! {
    6: work_of_a_library(stream: Stream, [a, b]: [DeviceBuffer<f32>; 2], mut c: DeviceBuffer<f32>)
}

example! { 7: a_named_operation(stream: Stream, host: Vec<f32>) }

async fn asynchronous(stream: Stream, number: u32) -> Result<()> {
    include!(concat!(env!("OUT_DIR"), "/cookbook_8.rs"))
}

example! { 9: host_memory(stream: Stream, numbers: Vec<u32>, mut buffer: DeviceBuffer<u32>) }

const SOURCE: &str = "";
example! { 10: kernels_from_text(device: Device, stream: Stream, numbers: Vec<f32>) }

example! {
    11: a_declared_kernel(
        module: Module, stream: Stream, x: DeviceBuffer<f32>, mut y: DeviceBuffer<f32>
    )
}

example! {
    12: parameters_of_kernels(
        module: Module, attract: Function, stream: Stream, mut x: DeviceBuffer<f32>
    )
}

const TIMES: u32 = 100;
example! { 13: the_time_of_a_kernel(stream: Stream, mut launch: Launch<'_>) }

example! { 14: a_kernel_that_fails(stream: Stream) }

fn step(_: &Stream, _: &Function, _: &DeviceBuffer<f32>, _: &mut DeviceBuffer<f32>) -> Result<()> {
    Ok(())
}

fn rate_of(number: usize) -> f32 {
    number as f32
}

example! {
    15: the_same_work_many_times(
        stream: Stream, saxpy: Function, inputs: Vec<Vec<f32>>, mut results: Vec<Vec<f32>>,
        mut x: DeviceBuffer<f32>, mut y: DeviceBuffer<f32>
    )
}

example! { 16: a_value_that_changes(stream: Stream, kernel: Function, mut y: DeviceBuffer<f32>) }

example! {
    17: a_loop(
        stream: Stream, newton: Function, mut x: DeviceBuffer<f32>, mut steps: DeviceBuffer<u32>
    )
}

fn send(_memory: [u8; 64], _event: [u8; 64]) {}

example! {
    18: two_processes(context: Context, stream: Stream, event: [u8; 64], memory: [u8; 64])
}

example! { 19: memory_for_both(device: Device, stream: Stream) }

const MIB: usize = 1 << 20;

fn part(_stream: &Stream) -> Result<()> {
    Ok(())
}

example! { 20: a_budget(stream: Stream) }

const SIZE: usize = 64;
example! {
    21: images(
        stream: Stream, columns: Vec<f32>, magnify: Function, mut large: DeviceBuffer<f32>
    )
}

const _: () = assert!(matches!(env!("cookbook_examples").as_bytes(), b"21"), "each is above");

fn train() -> Result<()> {
    Ok(())
}

fn a_log_of_allocations() -> std::result::Result<(), Box<dyn std::error::Error>> {
    include!(concat!(env!("OUT_DIR"), "/traces_1.rs"))
}
