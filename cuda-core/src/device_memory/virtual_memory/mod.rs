//! Virtual memory: addresses are reserved separately from the memory mapped there, so buffers grow in
//! place.
//!
//! A [`VirtualBuffer`] reserves addresses for its maximum number of elements, and maps
//! [`PhysicalMemory`] for the elements that it has. Growing copies nothing, and addresses stay the
//! same. Other devices get access to each buffer [separately](VirtualBuffer::set_access).
//!
//! ```no_run
//! use cuda_core::{Device, virtual_memory::VirtualBuffer};
//!
//! let stream = Device::get(0)?.create_stream()?;
//! let mut list = VirtualBuffer::<f32>::new(stream.context(), 1 << 30)?; // addresses alone
//! list.grow_to(1 << 20)?; // memory for the first mebi-elements
//! stream.fill(&mut list, 0.0f32)?;
//! # Ok::<(), cuda_core::Error>(())
//! ```

use std::ptr;

use cuda_sys::{CUmemAllocationHandleType, CUmemAllocationProp, symbol as cu};

use crate::device::{Device, mem_location};
use crate::error::{Result, asked};
use crate::process::driver;
use crate::util::raw_enum;

mod buffer;
mod mapping;
mod physical;

pub use buffer::{Virtual, VirtualBuffer};
pub use physical::PhysicalMemory;

/// Returns the properties of pinned memory of a device, the only kind that every driver supports.
fn properties(device: Device, handle_types: CUmemAllocationHandleType) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: cuda_sys::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_types,
        location: mem_location::of(device),
        ..CUmemAllocationProp::default()
    }
}

raw_enum! {
    /// Which granularity to return; see [`Device::virtual_memory_granularity`].
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::virtual_memory::{Granularity, PhysicalMemory};
    ///
    /// let step = device.virtual_memory_granularity(Granularity::Recommended)?;
    /// let bytes = (100_usize << 20).next_multiple_of(step);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    Granularity: CUmemAllocationGranularity_flags {
        /// The smallest granularity that works.
        Minimum = CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        /// The granularity for the best performance.
        Recommended = CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    }
}

/// # Virtual memory
impl Device {
    /// Returns the granularity, in bytes, of the device's physical memory:
    /// `cuMemGetAllocationGranularity`.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a device without virtual memory
    /// management.
    ///
    /// ```no_run
    /// use cuda_core::{Device, virtual_memory::Granularity};
    ///
    /// let step = Device::get(0)?.virtual_memory_granularity(Granularity::Minimum)?;
    /// assert!(step.is_power_of_two());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemGetAllocationGranularity"))]
    pub fn virtual_memory_granularity(self, which: Granularity) -> Result<usize> {
        granularity(self, which, &properties(self, cuda_sys::CU_MEM_HANDLE_TYPE_NONE))
    }
}

/// Returns the granularity of memory with these properties, which is on `device`.
fn granularity(
    device: Device,
    which: Granularity,
    properties: &CUmemAllocationProp,
) -> Result<usize> {
    driver::ensure()?;
    let attribute = cuda_sys::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    device.require(attribute, "virtual memory management")?;
    // SAFETY: the call reads properties, in the layout that it expects, through a borrow, and writes
    // one size, to an exclusive borrow.
    let step = asked("cuMemGetAllocationGranularity", 0, |step| unsafe {
        cu::cuMemGetAllocationGranularity(step, ptr::from_ref(properties).cast(), which.as_raw())
    })?;
    // A granularity of zero would round every size to zero.
    Ok(step.max(1))
}
