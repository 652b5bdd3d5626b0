//! Sharing memory with other processes.

use crate::util::raw_enum;
raw_enum! {
    /// How memory can be given to another process.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{interop::ShareableHandle, virtual_memory::PhysicalMemory};
    ///
    /// let memory = PhysicalMemory::new(&context, 2 << 20, ShareableHandle::PosixFd)?;
    /// let fd = memory.export_fd()?; // for another process
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[derive(Default)]
    ShareableHandle: CUmemAllocationHandleType {
        /// Not at all.
        #[default]
        None = CU_MEM_HANDLE_TYPE_NONE,
        /// As a file descriptor, on Unix: `PhysicalMemory::export_fd`, `MemoryPool::export_fd`.
        PosixFd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    }
}
