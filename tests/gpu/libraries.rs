//! Libraries: kernels loaded once for all contexts, if header and driver have them.

use std::time::Duration;

use cuda_core::{
    Context, ContextFlags, Device, Error, Library, ModuleError, Result,
    jit::{JitCache, JitOptions},
};
use support::{context, gpu_test, hash, kernels, one_stream, refusal, stall};

fn library() -> Result<Library> {
    kernels::register();
    Library::from_ptx(kernels::PTX)
}

gpu_test! {
    needs 2, cuda_12_0;
    fn m_a_library_is_of_every_device() -> Result<()> {
        let library = library()?;
        let kernel = library.kernel("add_one")?;
        assert_eq!(kernel.name(), "add_one");
        assert_eq!(kernel.library(), library);
        assert_eq!(kernel, library.kernel("add_one")?);
        assert_eq!(context::current(), std::ptr::null_mut(), "loaded without a context");
        let created = Context::new(Device::get(0)?, ContextFlags::default())?;
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?, created];
        for (context, round) in contexts.iter().zip(1u32..) {
            let add_one = kernel.function(context)?;
            assert_eq!(add_one.context(), context);
            assert!(add_one.module().is_none());
            assert_eq!(add_one, kernel.function(context)?);
            assert!(add_one.attributes()?.max_threads_per_block > 0);
            let stream = context.create_stream()?;
            let mut x = stream.alloc_zeroed::<u32>(100)?;
            for _ in 0..round {
                // SAFETY: 100 elements.
                unsafe { stream.kernel(&kernel).elements(100).arg(&mut x).arg(100u32).launch() }?;
            }
            // SAFETY: 100 elements.
            unsafe { stream.kernel(&add_one).elements(100).arg(&mut x).arg(100u32).launch() }?;
            let mut back = [0; 100];
            stream.download(&x, &mut back)?;
            assert_eq!(back, [round + 1; 100]);
            // Memory of another context is refused as well.
            let other = contexts.iter().find(|other| *other != context).expect("three");
            let stream = other.create_stream()?;
            // SAFETY: refused.
            let refused = unsafe { stream.kernel(&add_one).block(1).arg(&mut x).arg(0u32).launch() };
            assert!(matches!(refused, Err(Error::WrongContext(_))), "{refused:?}");
        }
        assert_eq!(context::current(), std::ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 2, cuda_12_0;
    fn s12_a_librarys_global_is_one_a_context() -> Result<()> {
        let library = library()?;
        let (here, there) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let mut counters = [library.global::<u32>(&here, "counter")?, library.global(&there, "counter")?];
        let taken = library.global::<u32>(&here, "counter");
        assert!(refusal(taken).contains("already"));
        assert!(matches!(library.global::<u32>(&here, "none"), Err(Error::Module(ref it)) if matches!(**it, ModuleError::NotFound { .. })));
        let bump = library.kernel("bump")?;
        for (context, by) in [(&here, 1u32), (&there, 2)] {
            let counter = &mut counters[by as usize - 1];
            let stream = context.create_stream()?;
            let bump = bump.function(context)?;
            // SAFETY: the kernel adds to the global that the launch names.
            unsafe { stream.kernel(&bump).block(1).arg(by).uses(&mut *counter).launch() }?;
            let mut back = [0];
            stream.download(&*counter, &mut back)?;
            assert_eq!(back, [5 + by]);
        }
        // The globals keep the library loaded.
        drop(library);
        let stream = here.create_stream()?;
        let mut back = [0];
        stream.download(&counters[0], &mut back)?;
        assert_eq!(back, [6]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn s21_options_of_a_library() -> Result<()> {
        kernels::register();
        let context = Device::get(0)?.context()?;
        let options = JitOptions::new().max_registers(32).verbose(true).cache(JitCache::All);
        // A text that was never compiled before: the driver caches results, and then writes no log.
        let now = std::time::SystemTime::now();
        let text = format!("{}\n// {} {now:?}\n", kernels::PTX, std::process::id());
        let library = Library::from_ptx_with(&text, &options)?;
        let add_one = library.kernel("add_one")?.function(&context)?;
        assert!(add_one.attributes()?.registers > 0);
        // A driver that compiles lazily has written nothing yet.
        if library.wall_time() > Duration::ZERO {
            assert!(library.log().contains("add_one"), "{}", library.log());
        }
        // SAFETY: PTX text is an image.
        let image = unsafe { Library::from_image_with(text.as_bytes(), &options) }?;
        assert_eq!(hash(&library), hash(&library.clone()));
        assert_ne!(hash(&library), hash(&image));
        let [one, again] = [library.kernel("add_one")?, library.kernel("add_one")?];
        assert_eq!(hash(&one), hash(&again));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn m11_bad_library() -> Result<()> {
        assert!(refusal(Library::from_ptx("int main;")).contains(".version"));
        assert!(refusal(Library::from_ptx(".version 7.0\0")).contains("NUL byte"));
        let library = library()?;
        match library.kernel("none") {
            Err(Error::Module(why)) => {
                let ModuleError::NotFound { kernels, count, .. } = *why else { panic!("{why:?}") };
                assert_eq!(kernels.len(), count.min(8));
                assert!(kernels.iter().all(|name| library.kernel(name).is_ok()), "{kernels:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(refusal(library.kernel("no\0ne")).contains("NUL byte"));
        // SAFETY: there is no such file.
        let missing = unsafe { Library::from_file("no such file") };
        assert!(matches!(missing, Err(Error::Module(ref it)) if matches!(**it, ModuleError::File { .. })), "{missing:?}");
        Ok(library.close()?)
    }
}

gpu_test! {
    needs 1, cuda_12_0, asynchronous;
    fn s42_unloading_a_library_waits_for_its_kernels() -> Result<()> {
        let (context, stream) = one_stream()?;
        let library = library()?;
        let add_one = library.kernel("add_one")?.function(&context)?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        for _ in 0..2 {
            // The first launch loads the kernel, and loading would wait for the stall.
            // SAFETY: 64 elements.
            unsafe { stream.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
            stream.synchronize()?;
        }
        let stalled = stall(stream.as_raw());
        // SAFETY: 64 elements.
        unsafe { stream.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
        stalled.release_after(std::time::Duration::from_millis(50));
        // The function keeps the library loaded until it is dropped.
        drop(library);
        drop(add_one);
        assert!(stream.query()?, "its kernel came first");
        Ok(())
    }
}
