//! Launches: shapes, arguments, limits.

use cuda_core::{
    Context, ContextFlags, Device, Error, LaunchError, ModuleError, PinnedBuffer, Result,
};
use support::{gpu_test, kernels, one_stream, report, two_streams};

pub(crate) fn is_limit(result: Result<()>, expected: &str) {
    match result {
        Err(Error::Launch(why)) if matches!(*why, LaunchError::Limit { what, .. } if what == expected) =>
            {}
        other => panic!("{expected}: {other:?}"),
    }
}

gpu_test! {
    needs 1;
    fn m_launch_reads_and_writes_buffers() -> Result<()> {
        let (context, stream) = one_stream()?;
        let saxpy = kernels::get(&context, "saxpy")?;
        let n = 1000u32;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let mut xs = stream.alloc::<f32>(n as usize)?;
        let mut ys = stream.alloc::<f32>(n as usize)?;
        stream.upload(&x, &mut xs)?;
        stream.fill(&mut ys, 1.0)?;
        let mut launch = stream.kernel(&saxpy).elements(n as usize).arg(2.0f32).arg(&xs).arg(&mut ys).arg(n);
        // SAFETY: `n` elements of each.
        unsafe { launch.launch() }?;
        // SAFETY: as above.
        unsafe { launch.launch() }?;
        let mut back = vec![0.0; n as usize];
        stream.download(&ys, &mut back)?;
        assert!(back.iter().zip(&x).all(|(y, x)| *y == 1.0 + 4.0 * x));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_scalars_arrive_bit_by_bit() -> Result<()> {
        let (context, stream) = one_stream()?;
        let echo = kernels::get(&context, "echo")?;
        let mut to = stream.alloc_zeroed::<u64>(8)?;
        let nan = f32::from_bits(0x7FC1_2345);
        let mut launch = stream
            .kernel(&echo)
            .block(1)
            .arg(&mut to)
            .arg(0xA5u8)
            .arg(0xBEEFu16)
            .arg(0x8000_0001u32)
            .arg(0xFEDC_BA98_7654_3210u64)
            .arg(nan)
            .arg(-0.0f64)
            .arg([1u32, 2, 0xFFFF_FFFF]);
        // SAFETY: the parameters of `echo`, and 60 of the 64 bytes of `to`.
        unsafe { launch.launch() }?;
        let mut back = [0; 8];
        stream.download(&to, &mut back)?;
        assert_eq!(
            back,
            [
                0xA5,
                0xBEEF,
                0x8000_0001,
                0xFEDC_BA98_7654_3210,
                0x7FC1_2345,
                (-0.0f64).to_bits(),
                2 << 32 | 1,
                0xFFFF_FFFF,
            ]
        );
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_many_arguments() -> Result<()> {
        let (context, stream) = one_stream()?;
        let six = kernels::get(&context, "take_six")?;
        let buffers: Vec<_> = (0..6).map(|_| stream.alloc::<u8>(64)).collect::<Result<_>>()?;
        let mut launch = stream.kernel(&six).block(1);
        for buffer in &buffers {
            launch = launch.arg(buffer);
        }
        // More arguments than a launch stores inline.
        for buffer in buffers.iter().cycle().take(30) {
            launch = launch.uses(buffer);
        }
        // SAFETY: six addresses, which the kernel ignores.
        unsafe { launch.launch() }?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn m02_not_sticky() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let module = kernels::load(&context)?;
        let error = module.function("nope").expect_err("there is no such kernel");
        assert!(matches!(&error, Error::Module(it) if matches!(&**it, ModuleError::NotFound { name, .. } if name == "nope")), "{error}");
        assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_NOT_FOUND));
        assert!(!error.is_sticky());
        if let Ok(functions) = module.functions() {
            let text = error.to_string();
            let first = format!("; it has `{}`, `", functions[0].name());
            assert!(text.contains(&first), "{text}");
            assert!(text.ends_with(&format!(", … ({})", functions.len())), "{text}");
        }
        // The context still works.
        let stream = context.create_stream()?;
        let add_one = module.function("add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        // SAFETY: 100 elements.
        unsafe { stream.kernel(&add_one).elements(100).arg(&mut x).arg(100u32).launch() }?;
        let mut back = [0; 100];
        stream.download(&x, &mut back)?;
        assert_eq!(back, [1; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m03_block_too_big() -> Result<()> {
        let (context, stream) = one_stream()?;
        let nothing = kernels::get(&context, "nothing")?;
        let launch = || stream.kernel(&nothing).block(1);
        for (block, what) in [
            ((15_000, 1, 1), "block.x"),
            ((1025, 1, 1), "block.x"),
            ((1, 1, 65), "block.z"),
            ((1024, 2, 1), "threads a block"),
            ((32, 32, 2), "threads a block"),
        ] {
            // SAFETY: no parameter.
            is_limit(unsafe { launch().block(block).launch() }, what);
        }
        // SAFETY: no parameter.
        is_limit(unsafe { launch().grid((1, 65_536)).launch() }, "grid.y");
        // SAFETY: no parameter.
        is_limit(unsafe { launch().grid(u32::MAX).launch() }, "grid.x");
        // SAFETY: no parameter.
        is_limit(unsafe { launch().elements(usize::MAX).launch() }, "grid.x");
        assert!(stream.query()?, "nothing is outstanding");
        // SAFETY: no parameter.
        unsafe { launch().grid((1, 65_535)).block((8, 8, 16)).launch() }?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn m04_zero_dims() -> Result<()> {
        let (context, stream) = one_stream()?;
        let nothing = kernels::get(&context, "nothing")?;
        let names = ["grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z"];
        for (zero, name) in names.into_iter().enumerate() {
            let mut sizes = [1; 6];
            sizes[zero] = 0;
            let [a, b, c, d, e, f] = sizes;
            let mut launch = stream.kernel(&nothing).grid((a, b, c)).block((d, e, f));
            // SAFETY: no parameter.
            is_limit(unsafe { launch.launch() }, name);
        }
        // SAFETY: no parameter.
        is_limit(unsafe { stream.kernel(&nothing).elements(0).grid(0).launch() }, "grid.x");
        assert!(stream.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m06_cooperative_too_big() -> Result<()> {
        let (context, stream) = one_stream()?;
        let nothing = kernels::get(&context, "nothing")?;
        let multiprocessors = context
            .device()
            .attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        let resident = multiprocessors * nothing.max_active_blocks(1024, 0)?;
        let launch = |blocks| stream.kernel(&nothing).block(1024).cooperative().grid(blocks);
        // SAFETY: no parameter.
        unsafe { launch(resident).launch() }?;
        // SAFETY: no parameter.
        let error = unsafe { launch(resident + 1).launch() }.expect_err("too big");
        assert_eq!(
            error.code(),
            Some(cuda_sys::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
        );
        let text = error.to_string();
        let asked = format!("grid {}, block 1024", resident + 1);
        let start = format!("cuLaunchKernelEx: `nothing`, {asked}: CUDA_ERROR_COOPERATIVE");
        assert!(text.starts_with(&start) && text.contains("`Function::max_active_blocks`"), "{text}");
        assert!(!error.is_sticky());
        stream.synchronize()
    }
}

gpu_test! {
    needs 2;
    fn m10_launch_current_elsewhere() -> Result<()> {
        let (first, second) = (Device::get(0)?, Device::get(1)?);
        let there = second.context()?;
        let add_one = kernels::get(&there, "add_one")?;
        let stream = there.create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let guard = first.enter()?;
        // SAFETY: 64 elements.
        unsafe { stream.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
        assert_eq!(Context::current()?, Some(first.context()?));
        guard.restore()?;
        let mut back = [0; 64];
        stream.download(&x, &mut back)?;
        assert_eq!(back, [1; 64]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn m_memory_of_another_device() -> Result<()> {
        let (near, far) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let add_one = kernels::get(&near, "add_one")?;
        let (here, there) = (near.create_stream()?, far.create_stream()?);
        let mut x = there.alloc_zeroed::<u32>(64)?;
        let mut launch = here.kernel(&add_one).elements(64).arg(&mut x).arg(64u32);
        // SAFETY: 64 elements, if it were launched.
        let refused = unsafe { launch.launch() };
        let error = refused.expect_err("its context has no access");
        assert!(matches!(error, Error::WrongDevice(ref it) if it.memory == 1 && it.stream == 0));
        assert!(error.to_string().contains("argument 0 of `add_one` is on device 1"), "{error}");
        let instead = "use a stream of device 1, or for buffers `Context::enable_peer_access`, for virtual ones \
                       `VirtualBuffer::set_access`";
        assert!(error.to_string().ends_with(instead), "{error}");
        if near.device().can_access_peer(far.device())? {
            near.enable_peer_access(&far)?;
            // SAFETY: 64 elements, which the device has access to now.
            unsafe { here.kernel(&add_one).elements(64).arg(&mut x).arg(64u32).launch() }?;
            let mut back = [0; 64];
            // The other device's stream waits for the kernel.
            there.download(&x, &mut back)?;
            assert_eq!(back, [1; 64]);
            near.disable_peer_access(&far)?;
        } else {
            report!("no access from device 0 to 1: only the refusal was tried");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn m_kernel_of_another_context() -> Result<()> {
        let (near, far) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let second = Context::new(near.device(), ContextFlags::default())?;
        let nothing = kernels::get(&near, "nothing")?;
        for other in [far, second] {
            let stream = other.create_stream()?;
            // SAFETY: no parameter.
            let refused = unsafe { stream.kernel(&nothing).block(1).launch() };
            let refused = refused.expect_err("it is of another context");
            assert!(matches!(refused, Error::WrongContext(_)), "{refused:?}");
            let says = format!(
                "`nothing`, loaded on device 0 and given to a stream of device {}, belongs to another \
                 context than the stream; load",
                stream.device().ordinal()
            );
            assert!(refused.to_string().contains(&says), "{refused}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn m_wrong_arguments() -> Result<()> {
        let (context, stream) = one_stream()?;
        let add_one = kernels::get(&context, "add_one")?;
        assert_eq!(add_one.parameters()?.as_deref(), Some(&[8, 4][..]));
        let mut x = stream.alloc_zeroed::<u32>(4)?;
        let mut launch = stream.kernel(&add_one).block(1).arg(&mut x);
        // SAFETY: refused.
        let refused = unsafe { launch.launch() };
        assert!(
            matches!(refused, Err(Error::Launch(ref it)) if matches!(**it, LaunchError::ArgumentCount { expected: 2, given: 1, .. })),
            "{refused:?}"
        );
        // SAFETY: refused.
        let refused = unsafe { launch.arg(4u64).launch() };
        assert!(
            matches!(
                refused,
                Err(Error::Launch(ref it)) if matches!(**it, LaunchError::ArgumentSize { index: 1, expected: 4, given: 8, .. })
            ),
            "{refused:?}"
        );
        assert_eq!(kernels::get(&context, "nothing")?.parameters()?, Some(Vec::new()));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_dynamic_shared_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let kernel = kernels::get(&context, "shared_size")?;
        let device = context.device();
        let most = device.attribute(
            cuda_sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )? as usize;
        let mut to = stream.alloc_zeroed::<u32>(1)?;
        let mut sizes = Vec::new();
        let what = "bytes of dynamic shared memory";
        let mut run = |bytes: usize| -> Result<()> {
            // SAFETY: one word.
            unsafe { stream.kernel(&kernel).block(1).dynamic_shared(bytes).arg(&mut to).launch() }?;
            let mut back = [0];
            stream.download(&to, &mut back)?;
            sizes.push(back[0] as usize);
            Ok(())
        };
        run(0)?;
        run(48 << 10)?;
        let allowed = "bytes of dynamic shared memory before `set_max_dynamic_shared` allows more";
        is_limit(run((48 << 10) + 4), allowed);
        is_limit(run(most + 1), what);
        is_limit(kernel.set_max_dynamic_shared(most + 1), what);
        kernel.set_max_dynamic_shared(most)?;
        run(most)?;
        // A maximum set as a plain attribute applies as well.
        kernel.set_max_dynamic_shared(0)?;
        kernel.set_attribute(
            cuda_sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            64 << 10,
        )?;
        run(60 << 10)?;
        kernel.set_attribute(cuda_sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0)?;
        is_limit(run(60 << 10), allowed);
        assert_eq!(sizes, [0, 48 << 10, most, 60 << 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_views_as_arguments() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut x = one.alloc_zeroed::<u32>(64)?;
        {
            let (low, mut high) = x.split_at_mut(16)?;
            // SAFETY: 16 elements.
            unsafe { one.kernel(&add_one).elements(16).arg(low).arg(16u32).launch() }?;
            for _ in 0..2 {
                // SAFETY: 48 elements.
                unsafe { two.kernel(&add_one).elements(48).arg(&mut high).arg(48u32).launch() }?;
            }
        }
        let copy = kernels::get(&context, "copy_words")?;
        let mut y = one.alloc_zeroed::<u32>(32)?;
        let middle = x.slice(8..40)?;
        // SAFETY: 32 elements.
        unsafe { one.kernel(&copy).elements(32).arg(&mut y).arg(middle).arg(32u32).launch() }?;
        let mut back = [0; 32];
        one.download(&y, &mut back)?;
        assert_eq!(back[..8], [1; 8]);
        assert_eq!(back[8..], [2; 24]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f09_kernels_reach_pinned_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut host = PinnedBuffer::from_slice(&context, &[41u32; 32])?;
        // SAFETY: 32 elements.
        unsafe { stream.kernel(&add_one).elements(32).arg(&mut host).arg(32u32).launch() }?;
        assert_eq!(host.as_slice()?, [42; 32]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_attributes_of_a_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let nothing = kernels::get(&context, "nothing")?;
        let (_, greatest) = context.stream_priority_range()?;
        // SAFETY: no parameter.
        unsafe { stream.kernel(&nothing).grid(4).block(32).priority(greatest).launch() }?;
        let (major, _) = context.device().compute_capability()?;
        if major >= 9 {
            let mut launch = stream.kernel(&nothing).grid(8).block(32).cluster(2).programmatic();
            // SAFETY: no parameter.
            unsafe { launch.launch() }?;
            let add_one = kernels::get(&context, "add_one")?;
            // The queries work before the launch has all its arguments.
            let mut launch = stream.kernel(&add_one).grid(8).block(32).cluster(2);
            assert!(launch.max_cluster_size()? >= 2);
            assert!(launch.max_active_clusters()? >= 1);
            // The grid is not a multiple of the cluster.
            // SAFETY: no parameter.
            let refused = unsafe { stream.kernel(&nothing).block(1).grid(7).cluster(2).launch() };
            let refused = refused.expect_err("seven blocks in clusters of two").to_string();
            assert!(refused.contains("grid 7, block 1, cluster 2"), "{refused}");
            assert!(refused.contains("a multiple of the cluster"), "{refused}");
        }
        stream.synchronize()
    }
}
