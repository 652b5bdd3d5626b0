//! What a `Drop` can leave behind.

use std::fmt;

/// What a failed `Drop` or `close` left behind, or may have left behind if the releasing call
/// failed.
///
/// ```
/// use cuda_core::Resource;
///
/// cuda_core::set_drop_hook(|failure| match failure.resource {
///     Resource::DeviceMemory => eprintln!("{} bytes are lost: {failure}", failure.bytes),
///     _ => eprintln!("{failure}"),
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Device memory that was not freed.
    DeviceMemory,
    /// Pinned host memory that was not freed.
    PinnedMemory,
    /// Host memory that was given to a copy, still allocated.
    HostMemory,
    /// Physical memory whose handle was not released.
    PhysicalMemory,
    /// Memory of another interface, such as Vulkan, that was not destroyed.
    ExternalMemory,
    /// A CUDA array, mipmapped or not, that was not destroyed.
    Array,
    /// A texture object that was not destroyed.
    Texture,
    /// A surface object that was not destroyed.
    Surface,
    /// A pool of the driver's that was not destroyed.
    MemoryPool,
    /// A stream that was not destroyed.
    Stream,
    /// An event that was not destroyed.
    Event,
    /// A semaphore of another interface, such as Vulkan, that was not destroyed.
    ExternalSemaphore,
    /// A context that was not destroyed; or that is never going to be, since memory in it was left
    /// behind of which it could not be proven that no work uses it.
    Context,
    /// A module, or a library, that was not unloaded.
    Module,
    /// A linker that was not destroyed.
    Linker,
    /// The thread's current context, which a guard could not restore.
    Current,
    /// A profiler's recording that was not ended.
    ProfilerRange,
    /// A value of a [`ContextLocal`](crate::ContextLocal), whose context could not be entered.
    LibraryHandle,
    /// A host function that panicked.
    HostFunction,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceMemory => "device memory",
            Self::PinnedMemory => "pinned memory",
            Self::HostMemory => "host memory given to a copy",
            Self::PhysicalMemory => "physical memory",
            Self::ExternalMemory => "external memory",
            Self::Array => "a CUDA array",
            Self::Texture => "a texture",
            Self::Surface => "a surface",
            Self::MemoryPool => "a memory pool",
            Self::Stream => "a stream",
            Self::Event => "an event",
            Self::ExternalSemaphore => "an external semaphore",
            Self::Context => "a context",
            Self::Module => "a module",
            Self::Linker => "a linker",
            Self::Current => "the thread's current context",
            Self::ProfilerRange => "a profiler's range",
            Self::LibraryHandle => "a library's handle",
            Self::HostFunction => "a host function",
        })
    }
}
