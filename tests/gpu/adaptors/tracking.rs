//! Outstanding allocations.

use cuda_core::adaptors::{Snapshot, Statistics, Tracking};
use cuda_core::{Allocator, Device, DeviceAllocator, Result};
use support::{gpu_test, refusal};

use super::{MIB, alloc, counter, shared, stream};

gpu_test! {
    needs 1;
    fn i11_tracking() -> Result<()> {
        let stream = stream()?;
        let (tracking, allocator) = shared(Tracking::new(Allocator::driver_pool()));
        assert_eq!(tracking.report().to_string(), "Outstanding: 0 blocks, 0 bytes");
        let buffers = (0..10).map(|_| alloc(&allocator, &stream, MIB));
        let buffers: Vec<_> = buffers.collect::<Result<_>>()?;
        let (kept, freed): (Vec<_>, Vec<_>) =
            buffers.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
        drop(freed);

        let outstanding = tracking.outstanding();
        let found: Vec<_> = outstanding.iter().map(|block| (block.number, block.address)).collect();
        let expected: Vec<_> =
            kept.iter().map(|(index, buffer)| (*index as u64, buffer.as_raw())).collect();
        assert_eq!(found, expected);
        for block in &outstanding {
            let device = Device::get(0)?;
            assert_eq!((block.bytes, block.device, block.stream), (MIB, device, stream.id()));
            assert!(block.backtrace.is_none());
        }
        let report = tracking.report();
        let text = report.to_string();
        assert!(text.starts_with("Outstanding: 5 blocks, 5 MiB\n  #0: 1 MiB at 0x"), "{text}");
        assert_eq!((report.bytes(), tracking.allocations()), (5 * MIB, 10));
        assert_eq!(tracking.report_since(6).blocks.len(), 2);
        drop(kept);
        assert!(tracking.report().is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1, heavy;
    fn i11_tracking_with_backtraces() -> Result<()> {
        let stream = stream()?;
        let (tracking, allocator) = shared(Tracking::with_backtraces(Allocator::driver_pool()));
        let buffer = alloc(&allocator, &stream, 100)?;
        let outstanding = tracking.outstanding();
        let backtrace = outstanding[0].backtrace.as_ref().expect("asked for");
        assert_eq!(backtrace.status(), std::backtrace::BacktraceStatus::Captured);
        let (frames, text) = (backtrace.to_string(), tracking.report().to_string());
        assert!(text.lines().count() > frames.lines().count(), "{text}");
        drop(buffer);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i13_tracking_wrong_size() -> Result<()> {
        let stream = stream()?;
        let tracking = Tracking::new(Statistics::new(Allocator::driver_pool()));
        let address = tracking.allocate(&stream, MIB)?;
        // SAFETY: the adaptor allocated it, and nothing uses it. Only the size is wrong, and the adaptor
        // promises to correct it.
        unsafe { tracking.deallocate(&stream, address, MIB / 2) }?;
        let report = tracking.report();
        assert!(report.is_empty());
        assert_eq!((report.mismatched, report.mismatches.len()), (1, 1));
        let mismatch = report.mismatches[0];
        assert_eq!((mismatch.address, mismatch.allocated, mismatch.given), (address, MIB, MIB / 2));
        let text = report.to_string();
        assert!(text.contains("1 MiB, freed as 512 KiB"), "{text}");
        assert_eq!(tracking.inner().counters().bytes, counter(0, MIB, MIB), "the recorded size");

        // SAFETY: nothing uses the address, which is no longer allocated: the adaptor refuses it.
        let twice = unsafe { tracking.deallocate(&stream, address, MIB) };
        assert!(refusal(twice).contains(&format!("{address:#x}")));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_snapshot_is_json() -> Result<()> {
        let stream = stream()?;
        let (tracking, allocator) = shared(Tracking::new(Allocator::driver_pool()));
        let buffers = [alloc(&allocator, &stream, 100)?, alloc(&allocator, &stream, 2000)?];
        let text = Snapshot::of(&*tracking).to_json();
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["version"], 1);
        assert_eq!(json["allocator"], "driver pool");
        let outstanding = json["outstanding"].as_array().expect("a list");
        assert_eq!(outstanding.len(), 2);
        assert_eq!(json["segments"].as_array().map(Vec::len), Some(0));
        for (index, (block, buffer)) in outstanding.iter().zip(&buffers).enumerate() {
            assert_eq!(block["number"], index);
            assert_eq!(block["address"], format!("{:#x}", buffer.as_raw()));
            assert_eq!(block["bytes"], buffer.len());
            assert_eq!((&block["device"], &block["stream"]), (&0.into(), &stream.id().into()));
            assert!(block["backtrace"].is_null());
        }
        Ok(())
    }
}
