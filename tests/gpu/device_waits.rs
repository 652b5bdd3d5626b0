//! The work that counts as complete after a wait for a whole context: that of all its streams.

use cuda_core::{CachingPool, Context, ContextFlags, Device, PinnedBuffer, Result, Signal, Stream};
use support::{gpu_test, one_stream};

const LEN: usize = 1 << 20;

/// Waits for all work of the context.
type Wait = fn(&Context) -> Result<()>;

fn both_ways(test: impl Fn(&Context, Wait) -> Result<()>) -> Result<()> {
    let primary = Device::get(0)?.context()?;
    test(&primary, |context| context.device().synchronize())?;
    test(&primary, Context::synchronize)?;
    let created = Context::new(Device::get(0)?, ContextFlags::default())?;
    test(&created, Context::synchronize)
}

/// Creates one stream of each kind.
fn streams(context: &Context) -> Result<Vec<Stream>> {
    Ok(vec![
        context.create_stream()?,
        context.stream_builder().blocking().build()?,
        context.default_stream()?,
    ])
}

gpu_test! {
    needs 1;
    fn pinned_memory_can_be_looked_at() -> Result<()> {
        both_ways(|context, wait| {
            for stream in streams(context)? {
                let buffer = stream.alloc_zeroed::<u32>(LEN)?;
                let mut host = PinnedBuffer::<u32>::new(context, LEN)?;
                stream.download(&buffer, &mut host)?;
                // The uses that a dropped stream left behind count as completed, too.
                drop((buffer, stream));
                wait(context)?;
                assert!(host.try_as_slice()?.is_some());
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn owned_copies_are_done() -> Result<()> {
        both_ways(|context, wait| {
            for stream in streams(context)? {
                let mut buffer = stream.alloc::<u32>(LEN)?;
                let flight = stream.upload_owned(vec![7_u32; LEN], &mut buffer);
                let flight = flight?;
                wait(context)?;
                assert!(flight.is_done()?);
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a_caching_pool_gives_everything_back() -> Result<()> {
        both_ways(|context, wait| {
            let pool = CachingPool::new();
            let allocator = pool.allocator();
            let streams = streams(context)?;
            for home in &streams {
                for user in &streams {
                    let mut buffer = home.alloc_with::<u32>(&allocator, LEN)?;
                    user.fill(&mut buffer, 1)?;
                }
            }
            let reserved = pool.usage(context.device()).reserved;
            assert!(reserved > 0);
            wait(context)?;
            assert_eq!(pool.trim(0)?, reserved);
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a_context_can_be_closed() -> Result<()> {
        for blocking in [false, true] {
            let context = Context::new(Device::get(0)?, ContextFlags::default())?;
            let stream = match blocking {
                true => context.stream_builder().blocking().build()?,
                false => context.create_stream()?,
            };
            let mut buffer = stream.alloc::<u8>(LEN)?;
            let flight = stream.upload_owned(vec![7; LEN], &mut buffer);
            drop(flight?);
            cuda_core::drops::flush();
            // Copies through the process's staging chunks, small and large, and through pinned memory.
            stream.upload(&[7; 1000], buffer.slice_mut(..1000)?)?;
            stream.upload(&vec![7; LEN], &mut buffer)?;
            let host = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
            stream.upload(&host, &mut buffer)?;
            drop(host);
            let signal = Signal::new(&context, 0_u32)?;
            stream.write_signal(&signal, 1)?;
            drop((signal, buffer, stream));
            context.synchronize()?;
            // The stream's cached blocks are freed after one of the library's threads has seen its work
            // complete.
            cuda_core::drops::flush();
            context.close()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn what_comes_later_is_not_taken_for_done() -> Result<()> {
        let (context, stream) = one_stream()?;
        let buffer = stream.alloc_zeroed::<u32>(LEN)?;
        let mut host = PinnedBuffer::<u32>::new(&context, LEN)?;
        context.synchronize()?;
        let held = support::stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        assert!(host.try_as_slice()?.is_none());
        held.release();
        host.as_slice().map(drop)
    }
}
