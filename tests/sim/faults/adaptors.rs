//! Adaptors stay consistent with each other whichever inner call fails.

use std::sync::Arc;

use cuda_core::adaptors::{Limiting, Logging, Statistics, Tracking};
use cuda_core::{Allocator, Device, Result, with_allocator};

use super::harness::sweep;

#[test]
fn counts_agree_whatever_fails() {
    sweep(|| {
        let logging = Logging::new(Allocator::driver_pool(), Vec::new()).expect("memory");
        let limiting = Limiting::new(Tracking::new(logging), 1 << 20);
        let statistics = Arc::new(Statistics::new(limiting));
        let allocator = Allocator::new(Arc::clone(&statistics));
        let agree = || {
            let report = statistics.inner().inner().report();
            let counters = statistics.counters();
            assert_eq!(counters.bytes.value, report.bytes() as i64);
            assert_eq!(counters.blocks.value, report.blocks.len() as i64);
            assert_eq!(statistics.inner().used(), report.bytes());
            report.bytes()
        };
        let played = (|| -> Result<()> {
            let (one, two) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
            let alloc = |stream: &cuda_core::Stream, bytes| {
                let buffer = with_allocator(&allocator, || stream.alloc::<u8>(bytes));
                agree();
                buffer
            };
            let first = alloc(&one, 1000)?;
            let second = alloc(&two, 500)?;
            assert_eq!(agree(), 1500);
            first.close()?;
            assert_eq!(agree(), 500);
            drop(second);
            Ok(())
        })();
        agree();
        played
    });
}
