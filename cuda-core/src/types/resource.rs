//! Resources that a `Drop` can leave behind.

use std::fmt;

/// Defines an enumeration with the text that `Display` writes for each variant.
macro_rules! shown {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)*
                })
            }
        }
    };
}

shown! {
    /// A resource that a failed `Drop` or `close` left behind, or may have left behind if the releasing call
    /// failed.
    ///
    /// ```
    /// use cuda_core::Resource;
    ///
    /// cuda_core::drops::set_hook(|failure| match failure.resource {
    ///     Resource::DeviceMemory => eprintln!("{} bytes are lost: {failure}", failure.bytes),
    ///     _ => eprintln!("{failure}"),
    /// });
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    Resource {
        /// Device memory that was not freed.
        DeviceMemory = "device memory",
        /// Pinned host memory that was not freed.
        PinnedMemory = "pinned memory",
        /// Host memory that is not pinned and that a copy may still use: memory given to the copy, or staging
        /// memory.
        HostMemory = "host memory that a copy uses",
        /// Physical memory whose handle was not released.
        PhysicalMemory = "physical memory",
        /// Memory of another interface, such as Vulkan, that was not destroyed.
        ExternalMemory = "external memory",
        /// A CUDA array, mipmapped or not, that was not destroyed.
        Array = "a CUDA array",
        /// A texture object that was not destroyed.
        Texture = "a texture",
        /// A surface object that was not destroyed.
        Surface = "a surface",
        /// A pool of the driver's that was not destroyed.
        MemoryPool = "a memory pool",
        /// A stream that was not destroyed.
        Stream = "a stream",
        /// An event that was not destroyed.
        Event = "an event",
        /// A semaphore of another interface, such as Vulkan, that was not destroyed.
        ExternalSemaphore = "an external semaphore",
        /// A context that was not destroyed, or never will be, since it has memory that work may
        /// still use.
        Context = "a context",
        /// A module, or a library, that was not unloaded.
        Module = "a module",
        /// A linker that was not destroyed.
        Linker = "a linker",
        /// The thread's current context, which a guard, or an operation, could not restore.
        Current = "the thread's current context",
        /// A profiler's recording that was not ended.
        ProfilerRange = "a profiler's range",
        /// A value of a [`ContextLocal`](crate::ContextLocal), whose context could not be entered.
        LibraryHandle = "a library's handle",
        /// A graph that was not destroyed.
        Graph = "a graph",
        /// An executable graph that was not destroyed.
        GraphExec = "an executable graph",
        /// Modules and functions that an executable graph kept, whose last launch cannot be proven complete;
        /// the memory and the stream of an operation of NCCL whose communicator could not be aborted.
        UsedByWork = "what work may still use",
        /// A communicator of NCCL that was not destroyed.
        Communicator = "a communicator",
        /// A host function that panicked.
        HostFunction = "a host function",
    }
}
