//! The attributes: first limits, sizes, counts and masks; then those that are yes or no.

use crate::error::Result;

/// Defines the getters with their documentation, and the table of names and numbers. The driver returns all
/// values as one type; `@value` converts them to the type that they stand for.
macro_rules! attributes {
    (@value i32 $raw:ident) => { $raw };
    // These values are never negative, or are masks that fill all bits.
    (@value u32 $raw:ident) => { $raw as u32 };
    (@value bool $raw:ident) => { $raw != 0 };
    ($($getter:ident: $value:ident = $name:ident, $number:literal, $doc:literal;)*) => {
        pub(super) const NAMED: &[(&str, u8)] = &[$((stringify!($name), $number)),*];

        impl super::DeviceAttributes {
            $(
                #[doc = $doc]
                #[doc = concat!("`CU_DEVICE_ATTRIBUTE_", stringify!($name), "`.")]
                ///
                /// # Errors
                /// The driver's.
                // Compiled where it is called: most programs call few of these.
                #[inline]
                pub fn $getter(self) -> Result<$value> {
                    let raw = self.0.attribute(super::attribute($number))?;
                    Ok(attributes!(@value $value raw))
                }
            )*
        }
    };
}

attributes! {
    max_threads_per_block: u32 = MAX_THREADS_PER_BLOCK, 1, "Most threads in a block.";
    max_block_dim_x: u32 = MAX_BLOCK_DIM_X, 2, "Most threads of a block in x.";
    max_block_dim_y: u32 = MAX_BLOCK_DIM_Y, 3, "Most threads of a block in y.";
    max_block_dim_z: u32 = MAX_BLOCK_DIM_Z, 4, "Most threads of a block in z.";
    max_grid_dim_x: u32 = MAX_GRID_DIM_X, 5, "Most blocks of a grid in x.";
    max_grid_dim_y: u32 = MAX_GRID_DIM_Y, 6, "Most blocks of a grid in y.";
    max_grid_dim_z: u32 = MAX_GRID_DIM_Z, 7, "Most blocks of a grid in z.";
    max_shared_memory_per_block: u32 = MAX_SHARED_MEMORY_PER_BLOCK, 8, "Shared memory that a block gets without asking for more, in bytes.";
    max_shared_memory_per_block_optin: u32 = MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97, "Shared memory that a block gets at most, once its function asks for it, in bytes.";
    max_oversized_shared_memory_per_block: u32 = MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK, 150, "Oversized shared memory that a block gets at most, in bytes.";
    max_shared_memory_per_multiprocessor: u32 = MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81, "Shared memory of a multiprocessor, in bytes.";
    reserved_shared_memory_per_block: u32 = RESERVED_SHARED_MEMORY_PER_BLOCK, 111, "Shared memory of each block that the driver keeps for itself, in bytes.";
    total_constant_memory: u32 = TOTAL_CONSTANT_MEMORY, 9, "Constant memory, in bytes.";
    warp_size: u32 = WARP_SIZE, 10, "Threads of a warp.";
    max_pitch: u32 = MAX_PITCH, 11, "Greatest pitch of a copy, in bytes.";
    max_registers_per_block: u32 = MAX_REGISTERS_PER_BLOCK, 12, "32-bit registers that a block gets at most.";
    max_registers_per_multiprocessor: u32 = MAX_REGISTERS_PER_MULTIPROCESSOR, 82, "32-bit registers of a multiprocessor.";
    max_threads_per_multiprocessor: u32 = MAX_THREADS_PER_MULTIPROCESSOR, 39, "Most threads that a multiprocessor holds at once.";
    max_blocks_per_multiprocessor: u32 = MAX_BLOCKS_PER_MULTIPROCESSOR, 106, "Most blocks that a multiprocessor holds at once.";
    multiprocessor_count: u32 = MULTIPROCESSOR_COUNT, 16, "Multiprocessors.";
    locality_domain_count: u32 = LOCALITY_DOMAIN_COUNT, 149, "Localities that the device's memory and multiprocessors are divided into.";
    locality_domain_multiprocessor_count: u32 = LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT, 157, "Multiprocessors of each locality.";
    clock_rate: u32 = CLOCK_RATE, 13, "Peak clock, in kilohertz.";
    memory_clock_rate: u32 = MEMORY_CLOCK_RATE, 36, "Peak clock of the memory, in kilohertz.";
    global_memory_bus_width: u32 = GLOBAL_MEMORY_BUS_WIDTH, 37, "Width of the memory's bus, in bits.";
    l2_cache_size: u32 = L2_CACHE_SIZE, 38, "Size of the L2 cache, in bytes.";
    max_persisting_l2_cache_size: u32 = MAX_PERSISTING_L2_CACHE_SIZE, 108, "Part of the L2 cache that can be set aside for persisting accesses, in bytes.";
    max_access_policy_window_size: u32 = MAX_ACCESS_POLICY_WINDOW_SIZE, 109, "Greatest window of an access policy, in bytes.";
    async_engine_count: u32 = ASYNC_ENGINE_COUNT, 40, "Copies that run beside kernels at the same time.";
    compute_capability_major: u32 = COMPUTE_CAPABILITY_MAJOR, 75, "Major compute capability.";
    compute_capability_minor: u32 = COMPUTE_CAPABILITY_MINOR, 76, "Minor compute capability.";
    compute_mode: u32 = COMPUTE_MODE, 20, "Which processes may use the device, as a `CUcomputemode`: 0 all, 2 none, 3 one at a time.";
    pci_bus_id: u32 = PCI_BUS_ID, 33, "Bus of the PCI address.";
    pci_device_id: u32 = PCI_DEVICE_ID, 34, "Device, or slot, of the PCI address.";
    pci_domain_id: u32 = PCI_DOMAIN_ID, 50, "Domain of the PCI address.";
    gpu_pci_device_id: u32 = GPU_PCI_DEVICE_ID, 139, "PCI device and vendor id, sixteen bits each.";
    gpu_pci_subsystem_id: u32 = GPU_PCI_SUBSYSTEM_ID, 140, "PCI subsystem and subsystem vendor id, sixteen bits each.";
    multi_gpu_board_group_id: u32 = MULTI_GPU_BOARD_GROUP_ID, 85, "A number that the devices of one board share.";
    single_to_double_precision_perf_ratio: u32 = SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 87, "How many times faster single precision is than double.";
    texture_alignment: u32 = TEXTURE_ALIGNMENT, 14, "Alignment of textures in linear memory, in bytes.";
    texture_pitch_alignment: u32 = TEXTURE_PITCH_ALIGNMENT, 51, "Alignment of the pitch of 2D textures in linear memory, in bytes.";
    surface_alignment: u32 = SURFACE_ALIGNMENT, 30, "Alignment of surfaces, in bytes.";
    maximum_texture1d_width: u32 = MAXIMUM_TEXTURE1D_WIDTH, 21, "Greatest width of a 1D texture, in texels.";
    maximum_texture1d_linear_width: u32 = MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 69, "Greatest width of a 1D texture in linear memory, in texels.";
    maximum_texture1d_mipmapped_width: u32 = MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 77, "Greatest width of a mipmapped 1D texture, in texels.";
    maximum_texture1d_layered_width: u32 = MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 42, "Greatest width of a layered 1D texture, in texels.";
    maximum_texture1d_layered_layers: u32 = MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 43, "Most layers of a layered 1D texture.";
    maximum_texture2d_width: u32 = MAXIMUM_TEXTURE2D_WIDTH, 22, "Greatest width of a 2D texture, in texels.";
    maximum_texture2d_height: u32 = MAXIMUM_TEXTURE2D_HEIGHT, 23, "Greatest height of a 2D texture, in texels.";
    maximum_texture2d_linear_width: u32 = MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 70, "Greatest width of a 2D texture in linear memory, in texels.";
    maximum_texture2d_linear_height: u32 = MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 71, "Greatest height of a 2D texture in linear memory, in texels.";
    maximum_texture2d_linear_pitch: u32 = MAXIMUM_TEXTURE2D_LINEAR_PITCH, 72, "Greatest pitch of a 2D texture in linear memory, in bytes.";
    maximum_texture2d_mipmapped_width: u32 = MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 73, "Greatest width of a mipmapped 2D texture, in texels.";
    maximum_texture2d_mipmapped_height: u32 = MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 74, "Greatest height of a mipmapped 2D texture, in texels.";
    maximum_texture2d_gather_width: u32 = MAXIMUM_TEXTURE2D_GATHER_WIDTH, 45, "Greatest width of a 2D texture that is gathered from, in texels.";
    maximum_texture2d_gather_height: u32 = MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 46, "Greatest height of a 2D texture that is gathered from, in texels.";
    maximum_texture2d_layered_width: u32 = MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 27, "Greatest width of a layered 2D texture, in texels.";
    maximum_texture2d_layered_height: u32 = MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 28, "Greatest height of a layered 2D texture, in texels.";
    maximum_texture2d_layered_layers: u32 = MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 29, "Most layers of a layered 2D texture.";
    maximum_texture3d_width: u32 = MAXIMUM_TEXTURE3D_WIDTH, 24, "Greatest width of a 3D texture, in texels.";
    maximum_texture3d_height: u32 = MAXIMUM_TEXTURE3D_HEIGHT, 25, "Greatest height of a 3D texture, in texels.";
    maximum_texture3d_depth: u32 = MAXIMUM_TEXTURE3D_DEPTH, 26, "Greatest depth of a 3D texture, in texels.";
    maximum_texture3d_width_alternate: u32 = MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 47, "Greatest width of a 3D texture of the other shape; zero: there is no other.";
    maximum_texture3d_height_alternate: u32 = MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 48, "Greatest height of a 3D texture of the other shape; zero: there is no other.";
    maximum_texture3d_depth_alternate: u32 = MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 49, "Greatest depth of a 3D texture of the other shape; zero: there is no other.";
    maximum_texturecubemap_width: u32 = MAXIMUM_TEXTURECUBEMAP_WIDTH, 52, "Greatest width and height of a cubemap texture, in texels.";
    maximum_texturecubemap_layered_width: u32 = MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 53, "Greatest width and height of a layered cubemap texture, in texels.";
    maximum_texturecubemap_layered_layers: u32 = MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 54, "Most layers of a layered cubemap texture.";
    maximum_surface1d_width: u32 = MAXIMUM_SURFACE1D_WIDTH, 55, "Greatest width of a 1D surface, in texels.";
    maximum_surface1d_layered_width: u32 = MAXIMUM_SURFACE1D_LAYERED_WIDTH, 61, "Greatest width of a layered 1D surface, in texels.";
    maximum_surface1d_layered_layers: u32 = MAXIMUM_SURFACE1D_LAYERED_LAYERS, 62, "Most layers of a layered 1D surface.";
    maximum_surface2d_width: u32 = MAXIMUM_SURFACE2D_WIDTH, 56, "Greatest width of a 2D surface, in texels.";
    maximum_surface2d_height: u32 = MAXIMUM_SURFACE2D_HEIGHT, 57, "Greatest height of a 2D surface, in texels.";
    maximum_surface2d_layered_width: u32 = MAXIMUM_SURFACE2D_LAYERED_WIDTH, 63, "Greatest width of a layered 2D surface, in texels.";
    maximum_surface2d_layered_height: u32 = MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 64, "Greatest height of a layered 2D surface, in texels.";
    maximum_surface2d_layered_layers: u32 = MAXIMUM_SURFACE2D_LAYERED_LAYERS, 65, "Most layers of a layered 2D surface.";
    maximum_surface3d_width: u32 = MAXIMUM_SURFACE3D_WIDTH, 58, "Greatest width of a 3D surface, in texels.";
    maximum_surface3d_height: u32 = MAXIMUM_SURFACE3D_HEIGHT, 59, "Greatest height of a 3D surface, in texels.";
    maximum_surface3d_depth: u32 = MAXIMUM_SURFACE3D_DEPTH, 60, "Greatest depth of a 3D surface, in texels.";
    maximum_surfacecubemap_width: u32 = MAXIMUM_SURFACECUBEMAP_WIDTH, 66, "Greatest width and height of a cubemap surface, in texels.";
    maximum_surfacecubemap_layered_width: u32 = MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 67, "Greatest width and height of a layered cubemap surface, in texels.";
    maximum_surfacecubemap_layered_layers: u32 = MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 68, "Most layers of a layered cubemap surface.";
    mempool_supported_handle_types: u32 = MEMPOOL_SUPPORTED_HANDLE_TYPES, 119, "Handles by which pools can be shared, as a mask of `CUmemAllocationHandleType`.";
    gpu_direct_rdma_flush_writes_options: u32 = GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 117, "How writes of other devices are flushed, as a mask of `CUflushGPUDirectRDMAWritesOptions`.";
    gpu_direct_rdma_writes_ordering: u32 = GPU_DIRECT_RDMA_WRITES_ORDERING, 118, "Which devices see writes of other devices in order, as a `CUGPUDirectRDMAWritesOrdering`.";
    mem_sync_domain_count: u32 = MEM_SYNC_DOMAIN_COUNT, 126, "Memory synchronisation domains.";
    mem_decompress_algorithm_mask: u32 = MEM_DECOMPRESS_ALGORITHM_MASK, 136, "Algorithms that the device decompresses in hardware, as a mask of `CUmemDecompressAlgorithm`.";
    mem_decompress_maximum_length: u32 = MEM_DECOMPRESS_MAXIMUM_LENGTH, 137, "Most bytes that one hardware decompression writes.";
    numa_config: u32 = NUMA_CONFIG, 130, "Whether the device's memory is a NUMA node of the host, as a `CUdeviceNumaConfig`.";
    logical_endpoint_supported_handle_types: u32 = LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES, 158, "Handles by which logical endpoints can be shared, as a mask.";
    tensor_map_large_tensor_min_size: u32 = TENSOR_MAP_LARGE_TENSOR_MIN_SIZE, 160, "Bytes from which on a tensor map takes a tensor for large.";
    numa_id: i32 = NUMA_ID, 131, "The NUMA node that the device's memory is; negative: none.";
    host_numa_id: i32 = HOST_NUMA_ID, 134, "The NUMA node of the host that is closest; negative: unknown.";

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
