//! Optional attributes of a launch, which `cuLaunchKernelEx` takes.

use cuda_sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchMemSyncDomain,
};

use super::{Dimensions, Launch};
use crate::stream::StreamKind;
use crate::util::raw_enum;

raw_enum! {
    /// The domain whose writes a kernel's fences wait for: kernels of different domains do not slow
    /// down each other's fences. From CUDA 12.0 on; see [`Launch::memory_sync_domain`].
    MemorySyncDomain: CUlaunchMemSyncDomain {
        /// The domain of all kernels that set none: `CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT`.
        Default = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
        /// The domain of kernels that communicate with other devices: `CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE`.
        Remote = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
    }
}

// INVARIANT: every value consists of three numbers, and holds no pointer.
/// Attributes of a launch; most launches have none.
pub(super) struct Attributes(Vec<CUlaunchAttribute>);

// SAFETY: by the invariant every value is numbers; the type is not `Send` by itself only because
// C's union of values could hold a pointer.
unsafe impl Send for Attributes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Attributes {}

impl Attributes {
    pub(super) const NONE: Self = Self(Vec::new());

    /// Sets an attribute, whose value of any type begins with these words.
    fn set(&mut self, id: CUlaunchAttributeID, words: [u32; 3]) {
        let mut value = CUlaunchAttributeValue::default();
        [value.clusterDim.x, value.clusterDim.y, value.clusterDim.z] = words;
        match self.0.iter_mut().find(|attribute| attribute.id == id) {
            Some(attribute) => attribute.value = value,
            None => self.0.push(CUlaunchAttribute { id, value, ..Default::default() }),
        }
    }

    /// Returns the first words of an attribute's value, if it is set.
    pub(super) fn get(&self, id: CUlaunchAttributeID) -> Option<[u32; 3]> {
        let attribute = self.0.iter().find(|attribute| attribute.id == id)?;
        // SAFETY: `set` wrote the `clusterDim` of every attribute.
        let first = unsafe { attribute.value.clusterDim };
        Some([first.x, first.y, first.z])
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [CUlaunchAttribute] {
        &mut self.0
    }
}

/// # Attributes
impl<K: StreamKind> Launch<'_, K> {
    /// Groups blocks into clusters, whose blocks run at the same time and share memory:
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`. From compute capability 9.0 on. The grid must be a
    /// multiple of the cluster. More than 8 blocks need
    /// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`, which
    /// [`Function::set_attribute`](crate::Function::set_attribute) sets.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("reduce")?;
    /// // Sixteen clusters of four blocks.
    /// let launch = stream.kernel(&function).grid(64).block(256).cluster(4);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchKernelEx", "cudaLaunchKernelEx", "cudaLaunchKernelExC"))]
    pub fn cluster(self, blocks: impl Into<Dimensions>) -> Self {
        let Dimensions { x, y, z } = blocks.into();
        self.with(cuda_sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [x, y, z])
    }

    /// Lets all blocks of the grid wait for each other: `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`. The
    /// driver refuses a grid that the device cannot hold at once, with
    /// `COOPERATIVE_LAUNCH_TOO_LARGE`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("sweep")?;
    /// let each = function.max_active_blocks(256, 0)?; // at once, on one multiprocessor
    /// let blocks = each * context.device().attributes().multiprocessor_count()?;
    /// let launch = stream.kernel(&function).grid(blocks).block(256).cooperative();
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchCooperativeKernel", "cudaLaunchCooperativeKernel"))]
    pub fn cooperative(self) -> Self {
        self.with(cuda_sys::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [1, 0, 0])
    }

    /// Sets the kernel's priority in place of its stream's, smaller numbers first:
    /// `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let (_least, greatest) = stream.context().stream_priority_range()?;
    /// let mut launch = stream.kernel(&function).grid(8).block(256).priority(greatest);
    /// // SAFETY: the kernel has no parameter and touches nothing.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchKernelEx", "cudaLaunchKernelEx", "cudaLaunchKernelExC"))]
    pub fn priority(self, priority: i32) -> Self {
        self.with(cuda_sys::CU_LAUNCH_ATTRIBUTE_PRIORITY, [priority as u32, 0, 0])
    }

    /// Lets the kernel begin before the preceding kernel of the stream has ended:
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`. From compute capability 9.0 on.
    ///
    /// The kernel must wait, with `griddepcontrol.wait`, before it accesses memory that earlier
    /// work uses, and in any case before it ends: see [`launch`](crate::Launch::launch).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// // Begins while the kernel before it ends, and waits for it by `griddepcontrol.wait`.
    /// let mut launch = stream.kernel(&function).grid(8).block(256).programmatic();
    /// // SAFETY: the kernel has no parameter, and each block waits before it touches anything.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchKernelEx", "cudaLaunchKernelEx", "cudaLaunchKernelExC"))]
    pub fn programmatic(self) -> Self {
        self.with(cuda_sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0, 0])
    }

    /// Sets the domain of the kernel's fences: `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN`, from CUDA 12.0
    /// on.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// use cuda_core::MemorySyncDomain;
    ///
    /// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("send")?;
    /// // A kernel that writes to other devices; fences of its neighbours need not wait for that.
    /// let launch = stream
    ///     .kernel(&function)
    ///     .grid(8)
    ///     .block(256)
    ///     .memory_sync_domain(MemorySyncDomain::Remote);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn memory_sync_domain(self, domain: MemorySyncDomain) -> Self {
        let domain = domain.as_raw().0 as _;
        self.with(cuda_sys::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, [domain, 0, 0])
    }

    fn with(mut self, id: CUlaunchAttributeID, words: [u32; 3]) -> Self {
        self.prepared.shape.attributes.set(id, words);
        self
    }
}

/// # Attributes that are set
impl<K: StreamKind> Launch<'_, K> {
    /// The size of the launch's [clusters](Launch::cluster), if it has any.
    pub fn get_cluster(&self) -> Option<Dimensions> {
        self.attribute(cuda_sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).map(Dimensions::from)
    }

    /// Whether the launch is [cooperative](Launch::cooperative).
    pub fn is_cooperative(&self) -> bool {
        self.attribute(cuda_sys::CU_LAUNCH_ATTRIBUTE_COOPERATIVE).is_some()
    }

    /// The launch's own [priority](Launch::priority), if one is set.
    pub fn get_priority(&self) -> Option<i32> {
        self.attribute(cuda_sys::CU_LAUNCH_ATTRIBUTE_PRIORITY).map(|[priority, ..]| priority as i32)
    }

    /// Whether the launch is [programmatic](Launch::programmatic).
    pub fn is_programmatic(&self) -> bool {
        let id = cuda_sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        self.attribute(id).is_some()
    }

    /// The [domain](Launch::memory_sync_domain) of the kernel's fences, if one is set.
    pub fn get_memory_sync_domain(&self) -> Option<MemorySyncDomain> {
        let [domain, ..] = self.attribute(cuda_sys::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)?;
        MemorySyncDomain::from_raw(CUlaunchMemSyncDomain(domain as _))
    }

    fn attribute(&self, id: CUlaunchAttributeID) -> Option<[u32; 3]> {
        self.prepared.shape.attributes.get(id)
    }
}
