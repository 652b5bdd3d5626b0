//! Modules and launches, with a fault at every call.

use cuda_core::{Context, ContextFlags, Device, Module, PinnedBuffer, jit::JitOptions};
use support::{kernels, one_stream, two_streams};

use super::harness::{first, sweep};

fn small() -> &'static str {
    kernels::register();
    ".version 7.0\n.target sm_70\n.address_size 64\n\
     .visible .global .align 4 .u32 counter = 5;\n\
     .visible .entry add_one(.param .u64 x, .param .u32 n) { ret; }\n\
     .visible .entry bump(.param .u32 by) { ret; }\n"
}

#[test]
fn load_launch_unload() {
    sweep(|| {
        let (_, context) = first()?;
        let module = Module::from_ptx_with(&context, small(), &JitOptions::new().verbose(true))?;
        let stream = context.create_stream()?;
        let add_one = module.function("add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(8)?;
        // SAFETY: 8 elements.
        unsafe { stream.kernel(&add_one).elements(8).arg(&mut x).arg(8u32).launch() }?;
        let mut back = [0; 8];
        stream.download(&x, &mut back)?;
        assert_eq!(back, [1; 8]);
        drop(add_one);
        Ok(module.close()?)
    });
}

#[test]
fn two_streams_and_pinned_memory() {
    sweep(|| {
        let (context, one, two) = two_streams()?;
        let add_one = Module::from_ptx(&context, small())?.function("add_one")?;
        let mut x = PinnedBuffer::from_slice(&context, &[3u32; 4])?;
        for stream in [&one, &two] {
            // SAFETY: 4 elements.
            unsafe { stream.kernel(&add_one).elements(4).arg(&mut x).arg(4u32).launch() }?;
        }
        assert_eq!(x.as_slice()?, [5; 4]);
        Ok(())
    });
}

#[test]
fn globals() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let module = Module::from_ptx(&context, small())?;
        let bump = module.function("bump")?;
        let mut counter = module.global::<u32>("counter")?;
        // SAFETY: the launch names the memory that the kernel writes.
        unsafe { stream.kernel(&bump).block(2).arg(2u32).uses(&mut counter).launch() }?;
        let mut back = [0];
        stream.download(&counter, &mut back)?;
        assert_eq!(back, [9]);
        Ok(counter.close()?)
    });
}

#[test]
fn in_a_created_context() {
    sweep(|| {
        let context = Context::new(Device::get(0)?, ContextFlags::default())?;
        let bump = Module::from_ptx(&context, small())?.function("bump")?;
        bump.attributes()?;
        bump.block_size_with(None, |threads| threads as usize)?;
        let stream = context.create_stream()?;
        // SAFETY: nothing else uses the global.
        unsafe { stream.kernel(&bump).block(1).arg(2u32).launch() }?;
        stream.synchronize()
    });
}

#[test]
fn library_in_two_contexts() {
    sweep(|| {
        let library = cuda_core::Library::from_ptx(small())?;
        let kernel = library.kernel("add_one")?;
        let created = Context::new(Device::get(1)?, ContextFlags::default())?;
        for context in [Device::get(0)?.context()?, created] {
            let counter = library.global::<u32>(&context, "counter")?;
            let add_one = kernel.function(&context)?;
            let stream = context.create_stream()?;
            let mut x = stream.alloc_zeroed::<u32>(8)?;
            let mut launch =
                stream.kernel(&add_one).elements(8).arg(&mut x).arg(8u32).uses(&counter);
            // SAFETY: 8 elements.
            unsafe { launch.launch() }?;
            let mut back = [0; 8];
            stream.download(&x, &mut back)?;
            assert_eq!(back, [1; 8]);
        }
        drop(kernel);
        Ok(library.close()?)
    });
}
