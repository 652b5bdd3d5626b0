//! Kernel launches and occupancy queries.

use std::ffi::{c_int, c_uint, c_void};

use cuda_sys::*;

use super::module::{OPT_IN, entry};
use crate::call::{Call, Outcome, list, put};
use crate::engine::enqueue::Submission;
use crate::engine::kernel::{Arguments, LaunchAttributes};
use crate::engine::work::Work;
use crate::graph::node::{KernelLaunch, NodeKind, Task};
use crate::handle::Id;
use crate::module::ptx::Parameter;
use crate::report::ViolationKind;

entries! {
    cuLaunchKernelEx(config, function, parameters, _extra) |call| {
        // SAFETY: the caller passes a configuration with its attributes.
        let shape = unsafe { Shape::read(config) }?;
        // SAFETY: the caller passes one pointer per parameter.
        unsafe { launch(call, &shape, function, parameters) }
    }

    cuLaunchKernel(
        function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters,
        _extra,
    ) |call| {
        let shape = Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared,
            stream,
            attributes: LaunchAttributes::default(),
        };
        // SAFETY: the caller passes one pointer per parameter.
        unsafe { launch(call, &shape, function, parameters) }
    }

    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared) |call| {
        let function = call.function(function)?;
        if threads <= 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let limit = call.functions[&function].max_dynamic_shared;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(blocks, resident_if_allowed(threads as u64, shared, limit) as c_int) }
    }

    cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads) |call| {
        call.function(function)?;
        if blocks <= 0 || threads <= 0 || resident(threads as u64, 0) < blocks as u64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let each = MULTIPROCESSOR_SHARED / blocks as u64 - RESERVED;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(bytes, each.min(OPT_IN as u64) as usize) }
    }

    cuOccupancyMaxPotentialBlockSize(min_grid, block, function, shared_of, shared, limit) |call| {
        let function = call.function(function)?;
        if shared_of.is_some() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let limit = if limit <= 0 { 1024 } else { limit.min(1024) };
        let sizes = (1..=limit).rev().filter(|&size| size == limit || size % 32 == 0);
        let most_shared = call.functions[&function].max_dynamic_shared;
        let best = sizes.map(|size| {
            let blocks = resident_if_allowed(size as u64, shared, most_shared);
            (blocks * size as u64, size, blocks)
        });
        // Of equal results, the first has the largest block.
        let found = best.fold((0, 0, 0), |best, next| if next.0 > best.0 { next } else { best });
        // SAFETY: the caller passes a place for the number.
        unsafe { put(min_grid, (found.2 * MULTIPROCESSORS) as c_int) }?;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(block, found.1) }
    }

    cuOccupancyMaxPotentialClusterSize(size, function, config) |call| {
        call.function(function)?;
        // SAFETY: the caller passes a configuration with its attributes.
        unsafe { Shape::read(config) }?;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(size, MAX_CLUSTER as c_int) }
    }

    cuOccupancyMaxActiveClusters(clusters, function, config) |call| {
        call.function(function)?;
        // SAFETY: the caller passes a configuration with its attributes.
        let shape = unsafe { Shape::read(config) }?;
        let blocks = resident(volume(shape.block), shape.shared.into()) * MULTIPROCESSORS;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(clusters, (blocks / volume(shape.cluster()).max(1)) as c_int) }
    }
}

const MULTIPROCESSORS: u64 = 132;
const MULTIPROCESSOR_SHARED: u64 = 228 << 10;
/// Shared memory that the driver reserves per block.
const RESERVED: u64 = 1 << 10;
/// The most blocks of a cluster, unless the kernel opts into more.
const MAX_CLUSTER: u64 = 8;

/// Like [`resident`], as the driver answers queries. The driver takes the low 32 bits of the size, to which
/// adding its own reserve may wrap around, and answers zero for more than the kernel may have.
fn resident_if_allowed(threads: u64, shared: usize, limit: c_int) -> u64 {
    let shared = shared as u32;
    let shared = shared.checked_add(RESERVED as u32).map_or(0, |_| shared.into());
    if shared > limit as u64 { 0 } else { resident(threads, shared) }
}

/// Returns the number of blocks that a multiprocessor holds.
fn resident(threads: u64, shared: u64) -> u64 {
    if threads == 0 || threads > 1024 || shared > OPT_IN as u64 {
        return 0;
    }
    let by_threads = 2048 / threads.next_multiple_of(32);
    by_threads.min(32).min(MULTIPROCESSOR_SHARED / (shared + RESERVED))
}

fn volume(size: [c_uint; 3]) -> u64 {
    size.iter().fold(1, |all, &size| all.saturating_mul(size.into()))
}

/// The dimensions and attributes of a launch.
pub(super) struct Shape {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
    pub(super) stream: CUstream,
    pub(super) attributes: LaunchAttributes,
}

impl Shape {
    /// # Safety
    /// `config` is null or points to a configuration with as many attributes as it declares.
    unsafe fn read(config: *const CUlaunchConfig) -> Outcome<Self> {
        if config.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so a configuration.
        let config = unsafe { &*config };
        let mut shape = Self {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
            stream: config.hStream,
            attributes: LaunchAttributes::default(),
        };
        // SAFETY: the configuration has this many attributes, which the caller keeps during the call.
        for attribute in unsafe { list(config.attrs, config.numAttrs as usize) }? {
            // SAFETY: every value is at least 64 bytes, all of them initialised.
            let pad = unsafe { attribute.value.pad };
            let word = |at: usize| {
                u32::from_ne_bytes(std::array::from_fn(|byte| pad[4 * at + byte] as u8))
            };
            let attributes = &mut shape.attributes;
            match attribute.id {
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE => attributes.cooperative = word(0) != 0,
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    attributes.cluster = Some([word(0), word(1), word(2)]);
                }
                CU_LAUNCH_ATTRIBUTE_PRIORITY => attributes.priority = Some(word(0) as i32),
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {
                    attributes.programmatic = word(0) != 0;
                }
                CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN if word(0) <= 1 => {
                    attributes.memory_sync_domain = word(0);
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(shape)
    }

    /// Returns the cluster dimensions, in blocks.
    fn cluster(&self) -> [c_uint; 3] {
        self.attributes.cluster.unwrap_or([1; 3])
    }

    /// Checks what a real driver checks.
    fn check(&self, max_dynamic: c_int) -> Outcome {
        let within = |size: [c_uint; 3], limits: [c_uint; 3]| {
            size.iter().zip(limits).all(|(&size, limit)| (1..=limit).contains(&size))
        };
        if !within(self.grid, [i32::MAX as c_uint, 65_535, 65_535])
            || !within(self.block, [1024, 1024, 64])
            || volume(self.block) > 1024
            || self.shared > max_dynamic as c_uint
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let divides = |(&size, &cluster): (&c_uint, &c_uint)| cluster > 0 && size % cluster == 0;
        let cluster = self.cluster();
        if volume(cluster) > MAX_CLUSTER || !self.grid.iter().zip(&cluster).all(divides) {
            return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let room = resident(volume(self.block), self.shared.into()) * MULTIPROCESSORS;
        if self.attributes.cooperative && volume(self.grid) > room {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }
}

/// # Safety
/// `pointers` holds one pointer per parameter, to as many bytes as the parameter has.
unsafe fn launch(
    call: &mut Call,
    shape: &Shape,
    function: CUfunction,
    pointers: *mut *mut c_void,
) -> Outcome {
    let stream = call.stream(shape.stream)?;
    let function = call.function(function)?;
    let module = call.functions[&function].module;
    if call.modules[&module].context != call.streams[&stream].context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    // SAFETY: this function's contract.
    let task = unsafe { task(call, shape, function, pointers) }?;
    if let Some(point) = call.submit(Submission::of(stream, task))? {
        call.note_launch(module, point);
    }
    Ok(())
}

/// Returns a launch as a task, with the arguments copied.
///
/// # Safety
/// `pointers` holds one pointer per parameter, to as many bytes as the parameter has.
pub(super) unsafe fn task(
    call: &mut Call,
    shape: &Shape,
    function: Id,
    pointers: *mut *mut c_void,
) -> Outcome<Task> {
    let module = call.functions[&function].module;
    let context = call.modules[&module].context;
    shape.check(call.functions[&function].max_dynamic_shared)?;
    let parameters = &entry(call, function).parameters;
    // SAFETY: there is one pointer per parameter.
    let pointers = unsafe { list(pointers, parameters.len()) }?;
    let mut given = Vec::new();
    for (pointer, &Parameter { size, .. }) in pointers.iter().zip(parameters) {
        let mut bytes = vec![0; size];
        // SAFETY: the pointer is to as many bytes as the parameter has.
        unsafe { std::ptr::copy_nonoverlapping(pointer.cast(), bytes.as_mut_ptr(), size) };
        given.push(bytes);
    }
    let globals = call.modules[&module].globals.iter();
    let arguments = Arguments {
        grid: shape.grid,
        block: shape.block,
        shared: shape.shared,
        attributes: shape.attributes,
        parameters: given,
        globals: globals.map(|(name, &(_, at, _))| (name.clone(), at)).collect(),
    };
    let (name, kernel) = (call.name, call.functions[&function].name.clone());
    let prepared = call.prepare(name, context, &kernel, arguments.clone())?;
    let mut accesses = Vec::new();
    let work = match prepared {
        Some(run) => {
            for (region, place) in run.touched() {
                accesses.extend(place.access(region.bytes, region.kind));
            }
            Work::Kernel { run }
        }
        // The kernel's text shows that it does nothing.
        None if entry(call, function).is_empty => Work::Nothing,
        None => return Err(unknown(call, &kernel, &arguments)),
    };
    let launch = KernelLaunch { module, function, arguments, pointers: Vec::new() };
    Ok(Task { call: name, kind: NodeKind::Kernel(launch), work, accesses })
}

/// Reports a launch whose effect the simulator cannot know.
fn unknown(call: &mut Call, kernel: &str, arguments: &Arguments) -> CUresult {
    let sizes: Vec<usize> = arguments.parameters.iter().map(Vec::len).collect();
    let message = format!(
        "the simulated driver does not execute PTX: register what the kernel `{kernel}`, with parameters \
         of {sizes:?} bytes, does with `cuda_sim::kernels!` or `register_kernel` before it is launched"
    );
    // A program that looks only at the error code would not learn the reason.
    eprintln!("cuda-driver-sim: {message}");
    call.violation(ViolationKind::UnknownKernel, message);
    CUDA_ERROR_NOT_SUPPORTED
}
