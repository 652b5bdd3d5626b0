//! S47: whichever `cuda.h` the build finds, the calls exist that only drivers later than the oldest supported
//! one have.
//!
//! `cargo xtask headers` builds and runs this with each header.

use cuda_core::{
    AnyThread, Context, Device, Kernel, Launch, Library, MemorySyncDomain, Module, Result, SmSplit,
    managed::{ManagedBuffer, MemoryLocation},
};
use support::kernels;

/// Each of these calls was missing, or failed with 36, if the header was older than the call.
#[test]
fn s47_the_header_takes_nothing_away() {
    let session = support::simulator();
    let all = || -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let stream = context.create_stream()?;
        // CUDA 12.0.
        assert_ne!(context.driver_id()?, 0);
        assert_ne!(stream.driver_id()?, 0);
        let library = Library::from_ptx(kernels::PTX)?;
        let kernel: Kernel = library.kernel("nothing")?;
        drop((kernel, library));
        let module: Module = kernels::load(&context)?;
        let nothing = module.function("nothing")?;
        let mut launch: Launch<'_, AnyThread> = stream.kernel(&nothing).block(1);
        launch = launch.memory_sync_domain(MemorySyncDomain::Remote);
        // SAFETY: the kernel has no parameter.
        unsafe { launch.launch() }?;
        // 12.2.
        let managed = ManagedBuffer::<u8>::new(&context, 1 << 16)?;
        managed.prefetch(&stream, .., MemoryLocation::HostNuma(0))?;
        // 12.4, and 12.5.
        assert_eq!(nothing.parameters()?, Some(Vec::new()));
        let split: SmSplit = device.sm_resource()?.split(8, 1)?;
        let green = Context::new_green(&[&split.groups[0]])?;
        let mark = session.mark();
        drop(green.create_stream()?);
        assert!(session.names_since(mark).contains(&"cuGreenCtxStreamCreate"));
        stream.synchronize()
    };
    all().expect("the simulated driver has it all");
    cuda_core::staging::trim().expect("no fault was injected");
    session.settle();
    session.assert_clean();
}
