//! Sharing memory with other processes.

use cuda_sys::CUmemAllocationHandleType;

/// How memory can be given to another process.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{PhysicalMemory, ShareableHandle};
///
/// let memory = PhysicalMemory::create(&context, 2 << 20, ShareableHandle::PosixFd)?;
/// let fd = memory.export_fd()?; // for another process
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShareableHandle {
    /// Not at all.
    #[default]
    None,
    /// As a file descriptor, on Unix: `PhysicalMemory::export_fd`, `MemoryPool::export_fd`.
    PosixFd,
}

impl ShareableHandle {
    pub(crate) fn as_raw(self) -> CUmemAllocationHandleType {
        match self {
            ShareableHandle::None => cuda_sys::CU_MEM_HANDLE_TYPE_NONE,
            ShareableHandle::PosixFd => cuda_sys::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        }
    }
}
