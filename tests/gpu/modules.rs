//! Modules: loading, kernels, globals, attributes.

use cuda_core::{
    BlockSize, Context, ContextFlags, Device, Error, Function, Module, ModuleError, Result,
    jit::{JitCache, JitFallback, JitOptions},
};
use support::{gpu_test, hash, kernels, one_stream, refusal, stall};

fn context() -> Result<Context> {
    Device::get(0)?.context()
}

gpu_test! {
    needs 1;
    fn m11_bad_module() -> Result<()> {
        let context = context()?;
        let wrong = ".version 7.0\n.target sm_70\n.address_size 64\n\
            .visible .entry f()\n{\n    oops;\n    ret;\n}\n";
        match Module::from_ptx(&context, wrong) {
            Err(Error::Module(why)) => {
                let ModuleError::Compile { code, log, .. } = *why else { panic!("{why:?}") };
                assert_eq!(code, cuda_sys::CUDA_ERROR_INVALID_PTX);
                assert!(log.contains("oops"), "{log}");
                assert!(log.contains("line 6"), "{log}");
            }
            other => panic!("{other:?}"),
        }
        for no_ptx in ["", "\n", "\x7fELF\x02\x01\x01", "int main;", "// .version 7.0"] {
            let refused = Module::from_ptx(&context, no_ptx);
            assert!(refusal(refused).contains(".version"));
        }
        let refused = Module::from_ptx(&context, ".version 7.0\0.target sm_70");
        assert!(refusal(refused).contains("NUL byte"));
        // The driver still works after that.
        kernels::load(&context)?.function("nothing")?;
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s13_text_needs_no_nul_of_its_own() -> Result<()> {
        let context = context()?;
        // The text ends exactly at the end of its allocation.
        let exact: Box<str> = kernels::PTX.into();
        Module::from_ptx(&context, &exact)?;
        // SAFETY: PTX text is an image.
        let module = unsafe { Module::from_image(&context, exact.as_bytes()) }?;
        let nothing = module.function("nothing")?;
        assert_eq!(hash(&module), hash(&module.clone()));
        assert_eq!(hash(&nothing), hash(&module.function("nothing")?));
        assert_ne!(hash(&nothing), hash(&module.function("add_one")?));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn m_a_modules_functions() -> Result<()> {
        let module = kernels::load(&context()?)?;
        let known = module.function("nothing")?;
        let functions = module.functions()?;
        assert_eq!(functions.len(), kernels::PTX.matches(".entry").count());
        for function in &functions {
            assert_eq!(*function, module.function(function.name())?);
        }
        let nothing = functions.iter().find(|function| function.name() == "nothing");
        assert_eq!(nothing, Some(&known));
        let stream = module.context().create_stream()?;
        drop((module, known));
        let add_one = functions.iter().find(|function| function.name() == "add_one");
        let (add_one, mut x) = (add_one.expect("a kernel"), stream.alloc_zeroed::<u32>(10)?);
        // SAFETY: ten elements.
        unsafe { stream.kernel(add_one).elements(10).arg(&mut x).arg(10u32).launch() }?;
        assert_eq!(stream.download_vec(&x)?, [1; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_modules_from_files() -> Result<()> {
        let context = context()?;
        let file = std::env::temp_dir().join(format!("kernels-{}.ptx", std::process::id()));
        // A text that was never compiled before: the driver caches results, and then writes no log.
        let now = std::time::SystemTime::now();
        let text = format!("{}\n// {} {now:?}\n", kernels::PTX, std::process::id());
        std::fs::write(&file, &text).expect("a file");
        let verbose = JitOptions::new().verbose(true);
        // SAFETY: PTX text.
        let logged = unsafe { Module::from_image_with(&context, text.as_bytes(), &verbose) };
        // SAFETY: PTX text.
        let module = unsafe { Module::from_file(&context, &file) };
        std::fs::remove_file(&file).expect("removed");
        module?.function("nothing")?;
        let logged = logged?;
        assert!(logged.log().contains("add_one"), "{}", logged.log());
        // SAFETY: there is no such file.
        let missing = unsafe { Module::from_file(&context, &file) };
        match missing {
            Err(Error::Module(why)) => {
                let ModuleError::File { path, kind, .. } = *why else { panic!("{why:?}") };
                assert_eq!((path, kind), (file, std::io::ErrorKind::NotFound));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s21_options_have_values() -> Result<()> {
        let context = context()?;
        let options = JitOptions::new()
            .max_registers(32)
            .threads_per_block(128)
            .optimization_level(1)
            .fallback(JitFallback::PreferPtx)
            .line_info(true)
            .debug_info(false)
            .cache(JitCache::All)
            .verbose(true);
        // A text that was never compiled before: the driver caches results, and then writes no log.
        let now = std::time::SystemTime::now();
        let text = format!("{}\n// {} {now:?}\n", kernels::PTX, std::process::id());
        let module = Module::from_ptx_with(&context, &text, &options)?;
        assert!(module.log().contains("add_one"), "{}", module.log());
        assert!(module.wall_time() > std::time::Duration::ZERO);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s12_a_global_has_one_owner() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::load(&context)?;
        let mut counter = module.global::<u32>("counter")?;
        assert_eq!(counter.len(), 1);
        for name in ["counter", "counter"] {
            let refused = module.global::<u8>(name);
            assert!(matches!(&refused, Err(Error::Invalid(it)) if it.reason.contains("already")), "{refused:?}");
        }
        let mut back = [0];
        stream.download(&counter, &mut back)?;
        assert_eq!(back, [5]);
        let bump = module.function("bump")?;
        // SAFETY: the kernel writes the global that the launch names.
        unsafe { stream.kernel(&bump).block(32).arg(3u32).uses(&mut counter).launch() }?;
        let other = context.create_stream()?;
        other.download(&counter, &mut back)?;
        assert_eq!(back, [5 + 3 * 32]);
        drop(counter);
        // It can be borrowed again, as elements of another type too.
        let bytes = module.global::<u8>("counter")?;
        assert_eq!(bytes.len(), 4);
        let refused = module.global::<[u8; 3]>("table");
        assert!(refusal(refused).starts_with("the global `table`: 16 bytes at"));
        let refused = module.global::<u8>("nope");
        assert!(matches!(refused, Err(Error::Module(ref it)) if matches!(**it, ModuleError::NotFound { .. })), "{refused:?}");
        Ok(bytes.close()?)
    }
}

gpu_test! {
    needs 1;
    fn m_constants_are_written_too() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::load(&context)?;
        let look_up = module.function("look_up")?;
        let mut table = module.global::<u32>("table")?;
        let mut to = stream.alloc_zeroed::<u32>(4)?;
        let mut back = [0; 4];
        // SAFETY: four words.
        unsafe { stream.kernel(&look_up).block(4).arg(&mut to).uses(&table).launch() }?;
        stream.download(&to, &mut back)?;
        assert_eq!(back, [2, 3, 5, 7]);
        stream.upload(&[11, 13, 17, 19], &mut table)?;
        // SAFETY: four words.
        unsafe { stream.kernel(&look_up).block(4).arg(&mut to).uses(&table).launch() }?;
        stream.download(&to, &mut back)?;
        assert_eq!(back, [11, 13, 17, 19]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_a_global_keeps_its_module() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::load(&context)?;
        let mut counter = module.global::<u32>("counter")?;
        module.close()?;
        stream.fill(&mut counter, 9)?;
        let mut back = [0];
        stream.download(&counter, &mut back)?;
        assert_eq!(back, [9]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn m_unloading_waits_for_the_kernels() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let add_one = kernels::get(&context, "add_one")?;
        // SAFETY: 64 elements.
        unsafe { stream.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        // SAFETY: 64 elements.
        unsafe { stream.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
        stalled.release_after(std::time::Duration::from_millis(20));
        // Drops the module's last handle.
        drop(add_one);
        assert!(stream.query()?, "the kernel has completed");
        let mut back = [0; 64];
        stream.download(&x, &mut back)?;
        assert_eq!(back, [2; 64]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_modules_and_contexts_come_and_go() -> Result<()> {
        for order in 0..4 {
            let context = Context::new(Device::get(0)?, ContextFlags::default())?;
            let module = kernels::load(&context)?;
            let function = module.function("nothing")?;
            let stream = context.create_stream()?;
            // SAFETY: no parameter.
            unsafe { stream.kernel(&function).block(1).launch() }?;
            match order {
                0 => drop((context, module, function, stream)),
                1 => drop((stream, function, module, context)),
                2 => drop((module, context, stream, function)),
                _ => drop((function, stream, context, module)),
            }
            assert_eq!(Context::current()?, None);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s08_dropped_while_another_context_is_current() -> Result<()> {
        let module = kernels::load(&Device::get(1)?.context()?)?;
        let clone = module.clone();
        assert_eq!(module, clone);
        let function = module.function("nothing")?;
        drop((module, clone));
        let guard = Device::get(0)?.enter()?;
        drop(function);
        assert_eq!(Context::current()?, Some(Device::get(0)?.context()?));
        guard.restore()
    }
}

gpu_test! {
    needs 1;
    fn m_dropped_in_a_host_function() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "nothing")?;
        // SAFETY: no parameter.
        unsafe { stream.kernel(&function).block(1).launch() }?;
        stream.launch_host_func(move || {
            let refused = function.module().expect("of a module").function("nothing");
            assert!(matches!(refused, Err(Error::InCallback)));
            drop(function);
        })?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn a40_cache_config_per_function() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "nothing")?;
        let before = context.cache_config()?;
        for config in [
            cuda_sys::CU_FUNC_CACHE_PREFER_L1,
            cuda_sys::CU_FUNC_CACHE_PREFER_SHARED,
            cuda_sys::CU_FUNC_CACHE_PREFER_EQUAL,
            cuda_sys::CU_FUNC_CACHE_PREFER_NONE,
        ] {
            function.set_cache_config(config)?;
            // SAFETY: no parameter.
            unsafe { stream.kernel(&function).block(1).launch() }?;
        }
        assert_eq!(context.cache_config()?, before, "the context's own hint");
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn m_attributes_of_a_function() -> Result<()> {
        let context = context()?;
        let function = kernels::get(&context, "stir")?;
        assert_eq!(function.name(), "stir");
        assert_eq!(function, function.module().expect("of a module").function("stir")?);
        let attributes = function.attributes()?;
        assert_eq!(attributes.max_threads_per_block, 1024);
        assert_eq!(attributes.static_shared, 0);
        assert_eq!(attributes.local, 0);
        assert!(attributes.registers > 0);
        assert_eq!(attributes.ptx_version, 70);
        let (major, minor) = context.device().compute_capability()?;
        assert_eq!(attributes.binary_version as i32, 10 * major + minor);
        assert!(attributes.max_dynamic_shared >= 48 << 10);
        function.set_preferred_carveout(Some(50))?;
        assert_eq!(function.attributes()?.preferred_carveout, Some(50));
        function.set_preferred_carveout(None)?;
        assert_eq!(function.attributes()?.preferred_carveout, None);
        assert!(function.set_preferred_carveout(Some(101)).is_err());
        assert!(function.attribute(cuda_sys::CUfunction_attribute(9999)).is_err());
        Ok(())
    }
}

fn fits(function: &Function, threads: u32, shared: usize) -> Result<u32> {
    function.max_active_blocks(threads, shared)
}

gpu_test! {
    needs 1;
    fn m_occupancy() -> Result<()> {
        let context = context()?;
        let function = kernels::get(&context, "stir")?;
        let (small, big) = (fits(&function, 32, 0)?, fits(&function, 1024, 0)?);
        assert!(small >= big && big >= 1, "{small}, {big}");
        assert!(fits(&function, 32, 40 << 10)? < small);
        let best = function.block_size(None, 0)?;
        assert!(best.threads >= 32 && best.min_grid >= 1, "{best:?}");
        assert!(function.block_size(Some(64), 0)?.threads <= 64);
        let resident = |of: BlockSize| -> Result<u32> {
            Ok(of.threads * fits(&function, of.threads, 0)?)
        };
        let plain = function.block_size_with(None, |_| 0)?;
        assert_eq!(resident(plain)?, resident(best)?, "{plain:?}, {best:?}");
        let mut asked = Vec::new();
        let shared = |threads: u32| {
            // The function may call the driver, like any code of the caller.
            assert!(Device::count().is_ok());
            asked.push(threads);
            if threads > 256 { usize::MAX >> 1 } else { threads as usize * 64 }
        };
        let with = function.block_size_with(Some(500), shared)?;
        assert!((32..=256).contains(&with.threads) && with.min_grid >= 1, "{with:?}");
        assert_eq!(asked[..3], [500, 480, 448]);
        let none = function.block_size_with(None, |_| usize::MAX >> 1);
        assert!(matches!(none, Err(Error::Invalid(_))), "{none:?}");
        // The driver uses the low 32 bits of a size.
        for much in [1 << 20, 1 << 31, u32::MAX as usize, 1 << 32, (1 << 32) + 1024, usize::MAX] {
            assert_eq!(fits(&function, 128, much)?, 0, "{much} bytes");
            let size = function.block_size(None, much);
            assert!(matches!(size, Err(Error::Invalid(_))), "{much} bytes: {size:?}");
        }
        // A kernel has more than 48 KiB only if it asks for them.
        assert_eq!(fits(&function, 128, 50 << 10)?, 0);
        function.set_max_dynamic_shared(50 << 10)?;
        assert!(fits(&function, 128, 50 << 10)? > 0);
        let room = function.available_dynamic_shared(1, 128)?;
        assert!(room >= 40 << 10, "{room}");
        assert!(function.available_dynamic_shared(4, 128)? <= room);
        // Zeros, by which nothing can be divided, are refused.
        for refused in [
            function.available_dynamic_shared(0, 128).map(drop),
            function.available_dynamic_shared(1, 0).map(drop),
            function.max_active_blocks(0, 0).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        let stream = context.create_stream()?;
        let mut launch = stream.kernel(&function).grid(8).block(32).cluster((2, 0));
        for refused in [launch.max_cluster_size(), launch.max_active_clusters()] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        Ok(())
    }
}
