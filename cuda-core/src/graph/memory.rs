//! The memory that graphs allocate while they run.

use std::ptr::from_mut;

use cuda_sys::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CUgraphMem_attribute,
    symbol as cu,
};

use crate::device::Device;
use crate::error::{Result, asked, check};
use crate::process::driver;
use crate::types::PoolUsage;

/// # Memory of graphs
impl Device {
    /// Returns how much memory allocations within graphs use, and how much the driver keeps
    /// reserved for them: `cuDeviceGetGraphMemAttribute`. These are allocations of
    /// [`Stream::alloc_in_graph`](crate::Stream::alloc_in_graph) and of [graphs of other
    /// code](crate::Graph::from_raw), not those of [`Stream::alloc`](crate::Stream::alloc) in a
    /// capture.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// println!("{} MiB are reserved for graphs", device.graph_memory()?.reserved >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetGraphMemAttribute", "cudaDeviceGetGraphMemAttribute"))]
    pub fn graph_memory(self) -> Result<PoolUsage> {
        driver::ensure()?;
        let ask = |attribute| -> Result<usize> {
            let bytes = asked("cuDeviceGetGraphMemAttribute", 0u64, |bytes| {
                let bytes = from_mut(bytes).cast();
                // SAFETY: the device is the driver's; all attributes are 64-bit numbers, which the
                // call writes to an exclusive borrow.
                unsafe { cu::cuDeviceGetGraphMemAttribute(self.as_raw(), attribute, bytes) }
            })?;
            Ok(bytes as usize)
        };
        let used = ask(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?;
        let reserved = ask(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?;
        Ok(PoolUsage {
            used,
            used_peak: ask(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved,
            reserved_peak: ask(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
            free: reserved.saturating_sub(used),
            ..PoolUsage::NONE
        })
    }

    /// Sets both peaks of [`graph_memory`](Self::graph_memory) to the present values:
    /// `cuDeviceSetGraphMemAttribute`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuDeviceSetGraphMemAttribute", "cudaDeviceSetGraphMemAttribute"))]
    pub fn reset_graph_memory_peaks(self) -> Result<()> {
        driver::ensure()?;
        let reset = |attribute: CUgraphMem_attribute| {
            let (device, mut zero) = (self.as_raw(), 0u64);
            let zero = (&raw mut zero).cast();
            // SAFETY: the device is the driver's; both attributes are 64-bit numbers, which the
            // call reads from a local that outlives it.
            let code = unsafe { cu::cuDeviceSetGraphMemAttribute(device, attribute, zero) };
            check("cuDeviceSetGraphMemAttribute", code)
        };
        reset(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        reset(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    /// Gives memory that is reserved for allocations within graphs but not in use back to the
    /// device: `cuDeviceGraphMemTrim`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuDeviceGraphMemTrim", "cudaDeviceGraphMemTrim"))]
    pub fn trim_graph_memory(self) -> Result<()> {
        driver::ensure()?;
        // SAFETY: the device is the driver's; memory in use stays.
        check("cuDeviceGraphMemTrim", unsafe { cu::cuDeviceGraphMemTrim(self.as_raw()) })
    }
}
