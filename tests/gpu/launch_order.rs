//! The order of launches relative to other work.

use cuda_core::{Device, PinnedBuffer, Result};
use support::{freed_behind_a_stall, gpu_test, kernels, one_stream, stall, two_streams};

gpu_test! {
    needs 1, asynchronous;
    fn m_other_streams_wait_for_the_kernel() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let add_one = kernels::get(&context, "add_one")?;
        let n = 1 << 10;
        let mut x = one.alloc_zeroed::<u32>(n)?;
        let mut y = one.alloc_zeroed::<u32>(n)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, n)?;
        // Makes every kind of call on both streams once.
        // SAFETY: the buffer has `n` elements.
        unsafe { one.kernel(&add_one).elements(n).arg(&mut x).arg(n as u32).launch() }?;
        two.copy(&x, &mut y)?;
        two.download(&y, &mut host)?;
        assert_eq!(host.as_slice()?, vec![1; n]);
        let stalled = stall(one.as_raw());
        // SAFETY: `n` elements.
        unsafe { one.kernel(&add_one).elements(n).arg(&mut x).arg(n as u32).launch() }?;
        two.copy(&x, &mut y)?;
        two.download(&y, &mut host)?;
        assert!(host.try_as_slice()?.is_none(), "it waits for the kernel");
        stalled.release();
        assert_eq!(host.as_slice()?, vec![2; n]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn m_the_kernel_waits_for_other_streams() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let copy = kernels::get(&context, "copy_words")?;
        let n = 1 << 10;
        let mut from = freed_behind_a_stall(|| one.alloc_zeroed::<u32>(n))?;
        let mut to = two.alloc_zeroed::<u32>(n)?;
        let source = PinnedBuffer::from_slice(&context, &vec![7u32; n])?;
        // SAFETY: `n` elements of both.
        unsafe { two.kernel(&copy).elements(n).arg(&mut to).arg(&from).arg(n as u32).launch() }?;
        two.synchronize()?;
        let stalled = stall(one.as_raw());
        one.upload(&source, &mut from)?;
        // SAFETY: `n` elements of both.
        unsafe { two.kernel(&copy).elements(n).arg(&mut to).arg(&from).arg(n as u32).launch() }?;
        assert!(!two.query()?);
        // Freed after the kernel.
        drop(from);
        stalled.release();
        let mut back = vec![0; n];
        two.download(&to, &mut back)?;
        assert_eq!(back, vec![7; n]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn m_default_streams() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let add_one = kernels::get(&context, "add_one")?;
        let home = context.create_stream()?;
        let mut x = home.alloc_zeroed::<u32>(8)?;
        let legacy = context.default_stream()?;
        let per_thread = context.per_thread_stream()?;
        // SAFETY: 8 elements.
        unsafe { legacy.kernel(&add_one).elements(8).arg(&mut x).arg(8u32).launch() }?;
        // SAFETY: 8 elements.
        unsafe { per_thread.kernel(&add_one).elements(8).arg(&mut x).arg(8u32).launch() }?;
        let mut back = [0; 8];
        home.download(&x, &mut back)?;
        assert_eq!(back, [2; 8]);
        Ok(())
    }
}

gpu_test! {
    needs 1, heavy;
    fn n08_shared_stream() -> Result<()> {
        const THREADS: u32 = 8;
        const EACH: u32 = 1250;
        let (context, stream) = one_stream()?;
        let increment = kernels::get(&context, "increment")?;
        let mut total = stream.alloc_zeroed::<u32>(1)?;
        let address = total.as_raw();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            // SAFETY: the kernel adds atomically to one word, which lives until the stream
                            // has been waited for.
                            unsafe { stream.kernel(&increment).block(2).arg(address).launch() }?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let results = workers.into_iter().map(|worker| worker.join());
            results
                .map(|result| result.expect("no panic"))
                .collect::<Result<Vec<()>>>()
        })?;
        stream.synchronize()?;
        let mut back = [0];
        stream.download(&total, &mut back)?;
        assert_eq!(back, [2 * THREADS * EACH]);
        stream.fill(&mut total, 0)
    }
}
