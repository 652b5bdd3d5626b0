//! Pools of streams, which are used in turn.

use std::collections::HashSet;
use std::thread;

use cuda_core::{Device, Result};
use support::{gpu_test, refusal};

gpu_test! {
    needs 1;
    fn c26_stream_pool() -> Result<()> {
        const LEN: usize = 4;
        let context = Device::get(0)?.context()?;
        assert!(refusal(context.stream_builder().build_pool(0)).contains("at least one stream"));

        let pool = context.stream_builder().build_pool(LEN)?;
        assert_eq!(pool.streams().len(), LEN);
        let turns: Vec<_> = (0..LEN + 3).map(|_| pool.next_stream().clone()).collect();
        let ids: HashSet<_> = turns[..LEN].iter().map(cuda_core::Stream::id).collect();
        assert_eq!(ids.len(), LEN, "distinct");
        assert_eq!(turns[LEN..], turns[..3], "and then from the first on");
        for stream in &turns[..LEN] {
            assert_ne!(*stream, context.default_stream()?);
            assert!(!stream.is_blocking()?);
            stream.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c26_options_and_threads() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (_, greatest) = context.stream_priority_range()?;
        let pool = context.stream_builder().blocking().priority(greatest).build_pool(2)?;
        for stream in pool.streams() {
            assert!(stream.is_blocking()?);
            assert_eq!(stream.priority()?, greatest);
        }
        let counts = thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| {
                let turns = (0..50).filter(|_| pool.next_stream() == &pool.streams()[0]);
                turns.count()
            }));
            threads.map(|thread| thread.join().expect("no assertion failed"))
        });
        assert_eq!(counts.iter().sum::<usize>(), 100, "half of the turns, for any caller");
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn c25_driver_id() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let streams = [context.create_stream()?, context.create_stream()?, context.default_stream()?];
        let mut ids = HashSet::new();
        for stream in &streams {
            assert!(ids.insert(stream.driver_id()?), "two streams of one id");
            assert_eq!(stream.driver_id()?, stream.clone().driver_id()?);
        }
        Ok(())
    }
}
