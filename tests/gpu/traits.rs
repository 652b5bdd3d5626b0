//! Plain data, names and handles have the traits that users of maps and logs expect.

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind, panic_any};

use cuda_core::adaptors::{Counters, SizeMismatch};
use cuda_core::dlpack::Consumer;
use cuda_core::image::{ArrayFlags, CudaArray, Texture};
use cuda_core::jit::{JitCache, JitOptions};
use cuda_core::managed::{ManagedAttributes, ManagedBuffer};
use cuda_core::nccl::{Communicator, CommunicatorOptions, Ranks, Reduction};
use cuda_core::nvrtc::Program;
use cuda_core::pinned::{ReadOnly, RegisterFlags};
use cuda_core::pools::{CacheBlock, CacheSegment};
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{
    Access, Allocator, CachingPool, Complex32, Complex64, Context, ContextFlags, Current, Device,
    DeviceBuffer, DeviceGroup, DeviceSlice, Dimensions, Error, Event, EventFlags, Extent, Function,
    Graph, GraphExec, GraphNode, Kernel, Library, MemoryInfo, MemoryPool, Module, NodeId, Origin,
    PerThreadStream, PinnedBuffer, PinnedPool, PitchedBuffer, PointerAttributes, PoolUsage,
    PrimaryState, Registered, Result, SharedSlice, Signal, Stream, StreamPool, Uuid, Version,
    WaitValue, bf16, f16,
};
use support::{gpu_test, one_stream};

/// Compiles only if all of the types have the traits.
macro_rules! are {
    ($($bound:path),+: $($type:ty),+ $(,)?) => {{
        fn is<T: ?Sized $(+ $bound)+>() {}
        $(is::<$type>();)+
    }};
}

#[test]
fn data_is_compared_hashed_and_shown() {
    are!(Eq, Hash, Debug, Clone: Access, Counters, SizeMismatch, Current, PrimaryState, CacheBlock,
        CacheSegment, ManagedAttributes, PointerAttributes, WaitValue<u32>, MemoryInfo,
        PoolUsage, JitOptions, Program, CommunicatorOptions, Reduction<u32>, Consumer, NodeId, Origin,
        ReadOnly<Vec<u8>>, ContextFlags, EventFlags, ArrayFlags, RegisterFlags);
    are!(Eq, Hash, Debug, Clone: Allocator, CachingPool, PinnedPool, Module, Library, Kernel, Device,
        GraphNode<'static>);
    are!(Display: MemoryInfo, Origin, Extent, Dimensions, Complex32, Complex64, f16, bf16, Uuid, Version);
}

#[test]
fn numbers_and_places_are_shown_as_people_write_them() {
    assert_eq!(Complex32::new(1.5, -2.0).to_string(), "1.5-2i");
    assert_eq!(Complex64::new(0.0, 1.0).to_string(), "0+1i");
    assert_eq!(Origin::from((48, 16)).to_string(), "(48, 16, 0)");
    assert_eq!(
        format!("{:?}", RegisterFlags::PORTABLE | RegisterFlags::MAPPED),
        "RegisterFlags(PORTABLE | MAPPED)"
    );
    assert_eq!(format!("{:?}", ContextFlags::default()), "ContextFlags(NONE)");
}

#[test]
fn equal_options_are_one_entry_of_a_set() {
    let one = JitOptions::new().max_registers(64).verbose(true).cache(JitCache::All);
    let other =
        JitOptions::new().cache(JitCache::All).verbose(false).verbose(true).max_registers(64);
    assert_eq!(one, other, "in whatever order they are set");
    assert_ne!(one, other.clone().verbose(false));
    assert_eq!(HashSet::from([one, other]).len(), 1);
    let program = || Program::new("text").define("N", 3);
    assert_eq!(HashSet::from([program(), program(), program().capability(90)]).len(), 2);
}

#[test]
fn equal_handles_are_one_entry_of_a_set() {
    let pool = CachingPool::new();
    let custom = Allocator::new(Allocator::plain());
    let all = [
        Allocator::cache(),
        CachingPool::shared().expect("its limit is none").allocator(),
        Allocator::plain(),
        Allocator::plain(),
        Allocator::driver_pool(),
        pool.allocator(),
        pool.clone().allocator(),
        CachingPool::new().allocator(),
        custom.clone(),
        custom,
        Allocator::new(Allocator::plain()),
    ];
    assert_eq!(HashSet::from(all).len(), 7);
    let own = PinnedPool::new();
    let all = [PinnedPool::shared(), PinnedPool::shared(), own.clone(), own, PinnedPool::new()];
    assert_eq!(HashSet::from(all).len(), 3);
}

#[test]
fn s33_a_panic_does_not_break_what_it_passes() {
    are!(UnwindSafe, RefUnwindSafe: Device, Context, Stream, PerThreadStream, StreamPool, Event, Error,
        DeviceBuffer<f32>, ManagedBuffer<f32>, PinnedBuffer<f32>, PitchedBuffer<f32>, VirtualBuffer<f32>,
        Registered<Vec<f32>>, SharedSlice<f32>, DeviceSlice<'static, f32>, CudaArray<f32>, Texture<f32>,
        Module, Function, Library, Kernel, Graph, GraphExec, DeviceGroup, Ranks, Communicator, MemoryPool,
        CachingPool, Allocator, Signal<u32>);
}

gpu_test! {
    needs 1;
    fn s33_work_goes_on_after_a_panic_that_is_caught() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let source = stream.upload_new(&[1u32; 1000])?;
        let caught = catch_unwind(|| {
            let copy = stream.copy_new(&source).expect("memory");
            panic_any(stream.download_vec(&copy));
        });
        let payload = caught.expect_err("it panics");
        let seen = payload.downcast_ref::<Result<Vec<u32>>>();
        assert_eq!(seen, Some(&Ok(vec![1; 1000])));
        assert_eq!(stream.download_vec(&source)?, [1; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_nodes_of_a_graph_are_compared() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut filled = || Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.fill(&mut x, 2)
        });
        let (one, other) = (filled()?, filled()?);
        let all = [one.nodes()?, one.nodes()?, other.nodes()?].concat();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4);
        assert_eq!(one.nodes()?[0], all[0]);
        Ok(())
    }
}
