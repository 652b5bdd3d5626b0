//! The simulated devices: their attributes.

use std::collections::BTreeSet;

use cuda_sys::*;

use crate::config::Config;
use crate::handle::Id;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) primary: Option<Id>,
    pub(crate) retained: u64,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: Id,
    pub(crate) current_pool: Id,
    /// The pool of the memory that graphs of the device allocate.
    pub(crate) graph_pool: Id,
    /// Bytes allocated outside pools.
    pub(crate) allocated: usize,
    /// Devices that this one cannot access.
    pub(crate) unreachable: BTreeSet<usize>,
}

pub(crate) const NAME: &str = "Simulated H200";

/// Returns the PCI bus id of a device, `DDDD:BB:DD.F`.
pub(crate) fn pci_bus_id(device: usize) -> String {
    format!("0000:{:02X}:00.0", pci_bus(device))
}

fn pci_bus(device: usize) -> usize {
    0x10 + device
}

/// Returns an invented UUID in the right format: version 4, with the ordinal in the last byte.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"cuda-driver-sim\0";
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes[15] = device as u8;
    bytes
}

/// Returns the value of a device attribute; `None` if this driver does not know the attribute.
pub(crate) fn attribute(
    attribute: CUdevice_attribute,
    device: usize,
    config: &Config,
) -> Option<i32> {
    Some(match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 227 << 10,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => 228 << 10,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => 1 << 10,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK => 65_536,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65_536,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => 32,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6144,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT => 512,
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => pci_bus(device) as i32,
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID | CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => 0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        | CU_DEVICE_ATTRIBUTE_TCC_DRIVER
        | CU_DEVICE_ATTRIBUTE_INTEGRATED
        | CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT
        | CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD
        | CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID
        | CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
        | CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        | CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => 0,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_ECC_ENABLED
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => 1,
        // Only some devices support it, so that programs meet both cases.
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED => i32::from(device % 2 == 0),
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => i32::from(config.concurrent_managed),
        CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED => 0,
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => i32::from(config.memory_pools),
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => i32::from(config.memory_pools),
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => i32::from(config.wide_values),
        _ => return None,
    })
}
