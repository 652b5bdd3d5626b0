//! Attributes that are yes or no.

use super::attributes;

attributes! {
    /// Names and numbers of the attributes in this file.
    BOOLEANS
    kernel_exec_timeout: bool = KERNEL_EXEC_TIMEOUT, 17, "Whether kernels have only so much time.";
    integrated: bool = INTEGRATED, 18, "Whether the device shares the host's memory.";
    can_map_host_memory: bool = CAN_MAP_HOST_MEMORY, 19, "Whether pinned memory can be mapped for the device.";
    concurrent_kernels: bool = CONCURRENT_KERNELS, 31, "Whether kernels run beside each other.";
    ecc_enabled: bool = ECC_ENABLED, 32, "Whether memory errors are corrected.";
    tcc_driver: bool = TCC_DRIVER, 35, "Whether the driver is Windows' TCC, which drives no display.";
    unified_addressing: bool = UNIFIED_ADDRESSING, 41, "Whether host and devices share one address space.";
    can_tex2d_gather: bool = CAN_TEX2D_GATHER, 44, "Whether gathering from 2D arrays is supported.";
    stream_priorities_supported: bool = STREAM_PRIORITIES_SUPPORTED, 78, "Whether streams have priorities.";
    global_l1_cache_supported: bool = GLOBAL_L1_CACHE_SUPPORTED, 79, "Whether global memory is cached in L1.";
    local_l1_cache_supported: bool = LOCAL_L1_CACHE_SUPPORTED, 80, "Whether local memory is cached in L1.";
    managed_memory: bool = MANAGED_MEMORY, 83, "Whether managed memory can be allocated.";
    concurrent_managed_access: bool = CONCURRENT_MANAGED_ACCESS, 89, "Whether the host may use managed memory while the device runs.";
    direct_managed_mem_access_from_host: bool = DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 101, "Whether the host reads managed memory that is on the device without moving it.";
    pageable_memory_access: bool = PAGEABLE_MEMORY_ACCESS, 88, "Whether the device reads pageable memory of the host by itself.";
    pageable_memory_access_uses_host_page_tables: bool = PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 100, "Whether the device reads pageable memory of the host by the host's page tables.";
    host_native_atomic_supported: bool = HOST_NATIVE_ATOMIC_SUPPORTED, 86, "Whether the link to the host has atomics.";
    only_partial_host_native_atomic_supported: bool = ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 147, "Whether the link to the host has some atomics only.";
    atomic_reduction_supported: bool = ATOMIC_REDUCTION_SUPPORTED, 148, "Whether the link to the host has atomic reductions.";
    compute_preemption_supported: bool = COMPUTE_PREEMPTION_SUPPORTED, 90, "Whether kernels can be preempted.";
    multi_gpu_board: bool = MULTI_GPU_BOARD, 84, "Whether the board has several devices.";
    can_use_host_pointer_for_registered_mem: bool = CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91, "Whether the device uses registered memory by the host's address.";
    host_register_supported: bool = HOST_REGISTER_SUPPORTED, 99, "Whether memory of the host can be registered.";
    read_only_host_register_supported: bool = READ_ONLY_HOST_REGISTER_SUPPORTED, 113, "Whether read-only memory of the host can be registered.";
    can_use_64_bit_stream_mem_ops: bool = CAN_USE_64_BIT_STREAM_MEM_OPS, 122, "Whether streams write and wait for 64-bit values.";
    can_use_stream_wait_value_nor: bool = CAN_USE_STREAM_WAIT_VALUE_NOR, 123, "Whether streams can wait for the NOR of a value.";
    can_flush_remote_writes: bool = CAN_FLUSH_REMOTE_WRITES, 98, "Whether writes of other devices can be flushed.";
    cooperative_launch: bool = COOPERATIVE_LAUNCH, 95, "Whether cooperative kernels can be launched.";
    cluster_launch: bool = CLUSTER_LAUNCH, 120, "Whether thread block clusters can be launched.";
    virtual_memory_management_supported: bool = VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102, "Whether address ranges can be reserved and mapped.";
    handle_type_posix_file_descriptor_supported: bool = HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103, "Whether memory can be shared by file descriptor.";
    handle_type_win32_handle_supported: bool = HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 104, "Whether memory can be shared by Windows handle.";
    handle_type_win32_kmt_handle_supported: bool = HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 105, "Whether memory can be shared by Windows KMT handle.";
    handle_type_fabric_supported: bool = HANDLE_TYPE_FABRIC_SUPPORTED, 128, "Whether memory can be shared across nodes by fabric handle.";
    generic_compression_supported: bool = GENERIC_COMPRESSION_SUPPORTED, 107, "Whether memory can be compressible.";
    gpu_direct_rdma_supported: bool = GPU_DIRECT_RDMA_SUPPORTED, 116, "Whether other devices can read and write the memory directly.";
    gpu_direct_rdma_with_cuda_vmm_supported: bool = GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110, "Whether other devices can read and write mapped memory directly.";
    gpu_direct_rdma_with_localized_memory_supported: bool = GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED, 161, "Whether other devices can read and write memory of one locality directly.";
    sparse_cuda_array_supported: bool = SPARSE_CUDA_ARRAY_SUPPORTED, 112, "Whether arrays can be sparse.";
    deferred_mapping_cuda_array_supported: bool = DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 121, "Whether arrays can be mapped later.";
    timeline_semaphore_interop_supported: bool = TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 114, "Whether timeline semaphores of graphics can be used.";
    memory_pools_supported: bool = MEMORY_POOLS_SUPPORTED, 115, "Whether allocation can be stream-ordered.";
    dma_buf_supported: bool = DMA_BUF_SUPPORTED, 124, "Whether memory can be exported as a dma-buf.";
    dma_buf_mmap_supported: bool = DMA_BUF_MMAP_SUPPORTED, 152, "Whether the host can map memory that is exported as a dma-buf.";
    ipc_event_supported: bool = IPC_EVENT_SUPPORTED, 125, "Whether events can be shared between processes.";
    tensor_map_access_supported: bool = TENSOR_MAP_ACCESS_SUPPORTED, 127, "Whether kernels can use tensor maps.";
    unified_function_pointers: bool = UNIFIED_FUNCTION_POINTERS, 129, "Whether host and device share function pointers.";
    multicast_supported: bool = MULTICAST_SUPPORTED, 132, "Whether multicast objects can be made.";
    mps_enabled: bool = MPS_ENABLED, 133, "Whether contexts are shared through the multi-process service.";
    d3d12_cig_supported: bool = D3D12_CIG_SUPPORTED, 135, "Whether contexts can be created in Direct3D 12 graphics.";
    d3d12_cig_streams_supported: bool = D3D12_CIG_STREAMS_SUPPORTED, 151, "Whether streams can be created in Direct3D 12 graphics.";
    vulkan_cig_supported: bool = VULKAN_CIG_SUPPORTED, 138, "Whether contexts can be created in Vulkan graphics.";
    vulkan_cig_streams_supported: bool = VULKAN_CIG_STREAMS_SUPPORTED, 159, "Whether streams can be created in Vulkan graphics.";
    host_numa_virtual_memory_management_supported: bool = HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 141, "Whether memory of a NUMA node of the host can be mapped.";
    host_numa_memory_pools_supported: bool = HOST_NUMA_MEMORY_POOLS_SUPPORTED, 142, "Whether pools can be on a NUMA node of the host.";
    host_numa_multinode_ipc_supported: bool = HOST_NUMA_MULTINODE_IPC_SUPPORTED, 143, "Whether memory of a NUMA node of the host can be shared across nodes of a cluster.";
    host_memory_pools_supported: bool = HOST_MEMORY_POOLS_SUPPORTED, 144, "Whether pools can be on the host.";
    host_virtual_memory_management_supported: bool = HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 145, "Whether memory of the host can be mapped.";
    host_alloc_dma_buf_supported: bool = HOST_ALLOC_DMA_BUF_SUPPORTED, 146, "Whether pinned memory can be exported as a dma-buf.";
    logical_endpoint_unicast_supported: bool = LOGICAL_ENDPOINT_UNICAST_SUPPORTED, 153, "Whether logical endpoints can be unicast.";
    logical_endpoint_multicast_supported: bool = LOGICAL_ENDPOINT_MULTICAST_SUPPORTED, 154, "Whether logical endpoints can be multicast.";
    logical_endpoint_counted_ops_supported: bool = LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED, 155, "Whether logical endpoints can count operations.";
    logical_endpoint_unicast_access_on_owner_device_supported: bool = LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED, 156, "Whether the owner itself can use a unicast endpoint.";
}
