//! Settings of launches, builders and options can be read back.

use std::num::NonZero;
use std::time::Duration;

use cuda_core::adaptors::{OnFailure, Verdict};
use cuda_core::interop::ShareableHandle;
use cuda_core::jit::{JitCache, JitFallback, JitOptions};
use cuda_core::nccl::CommunicatorOptions;
use cuda_core::nvrtc::Program;
use cuda_core::nvtx::{NvtxEvent, NvtxPayload};
use cuda_core::pools::PoolLimit;
use cuda_core::{
    Allocator, CachingPool, Device, Dimensions, MemoryPool, MemorySyncDomain, Result, sys,
};
use support::{gpu_test, kernels, one_stream};

gpu_test! {
    needs 1;
    fn m_a_launch_says_what_was_set() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "copy_words")?;
        let plain = stream.kernel(&function);
        assert_eq!((plain.get_grid(), plain.get_block()), (Dimensions::from(1), Dimensions::from(0)));
        // SAFETY: the launch is refused, since no block size was set.
        let unset = unsafe { stream.kernel(&function).grid(4).launch() };
        assert!(unset.expect_err("no threads").to_string().contains("`block`, or `elements`"));
        assert_eq!((plain.get_dynamic_shared(), plain.get_cluster()), (0, None));
        assert_eq!((plain.get_priority(), plain.get_memory_sync_domain()), (None, None));
        assert!(!plain.is_cooperative() && !plain.is_programmatic());
        assert_eq!(plain.stream().id(), stream.id());

        let set = stream.kernel(&function).grid((8, 4)).block((16, 2, 2)).dynamic_shared(64);
        let set = set.cluster((2, 1, 3)).priority(-5).memory_sync_domain(MemorySyncDomain::Remote);
        assert_eq!((set.get_grid(), set.get_block()), ((8, 4).into(), (16, 2, 2).into()));
        assert_eq!((set.get_dynamic_shared(), set.get_cluster()), (64, Some((2, 1, 3).into())));
        assert_eq!(set.get_priority(), Some(-5));
        assert_eq!(set.get_memory_sync_domain(), Some(MemorySyncDomain::Remote));
        let set = set.memory_sync_domain(MemorySyncDomain::Default).priority(0);
        assert_eq!(set.get_memory_sync_domain(), Some(MemorySyncDomain::Default));
        assert_eq!(set.get_priority(), Some(0), "as the last call set it");
        assert!(!set.is_cooperative() && set.cooperative().is_cooperative());
        assert!(stream.kernel(&function).block(1).programmatic().is_programmatic());

        let many = stream.kernel(&function).elements(1000);
        assert_eq!((many.get_grid(), many.get_block()), (4.into(), 256.into()));
        assert_eq!(many.elements(0).get_grid().volume(), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c_a_stream_builder_says_what_was_set() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let plain = context.stream_builder();
        assert_eq!((plain.is_blocking(), plain.get_priority(), plain.context()), (false, 0, &context));
        let set = plain.blocking().priority(-1);
        assert_eq!((set.is_blocking(), set.get_priority()), (true, -1));
        assert!(set.build()?.is_blocking()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h_pool_builders_say_what_was_set() -> Result<()> {
        let device = Device::get(0)?;
        let plain = CachingPool::builder();
        assert_eq!((plain.get_upstream(), plain.get_initial()), (&Allocator::plain(), 0));
        assert_eq!(plain.get_limit(), PoolLimit::None);
        let driver = Allocator::driver_pool();
        let set = plain.upstream(&driver).initial(5 << 20).limit(PoolLimit::Bytes(1 << 30));
        assert_eq!((set.get_upstream(), set.get_initial()), (&driver, 5 << 20));
        assert_eq!(set.get_limit(), PoolLimit::Bytes(1 << 30));
        assert_eq!(set.build()?.limit(), PoolLimit::Bytes(1 << 30));

        let plain = MemoryPool::builder(device);
        assert_eq!((plain.device(), plain.get_max_size()), (device, None));
        assert_eq!(plain.get_shareable(), ShareableHandle::None);
        assert_eq!(plain.get_release_threshold(), usize::MAX);
        let set = plain.max_size(1 << 30).release_threshold(7).shareable(ShareableHandle::PosixFd);
        assert_eq!((set.get_max_size(), set.get_release_threshold()), (Some(1 << 30), 7));
        assert_eq!(set.get_shareable(), ShareableHandle::PosixFd);

        let retrying = OnFailure::new(driver, |_| Verdict::GiveUp);
        assert_eq!((retrying.get_max_retries(), retrying.max_retries(3).get_max_retries()), (16, 3));
        Ok(())
    }
}

#[test]
fn options_of_compilers_say_what_was_set() {
    let plain = JitOptions::new();
    let numbers = |it: &JitOptions| {
        (it.get_max_registers(), it.get_threads_per_block(), it.get_optimization_level())
    };
    let switches = |it: &JitOptions| (it.get_debug_info(), it.get_line_info(), it.get_verbose());
    assert_eq!((numbers(&plain), switches(&plain)), ((None, None, None), (None, None, None)));
    assert_eq!((plain.get_target(), plain.get_fallback()), (None, None));
    assert_eq!(plain.get_cache(), JitCache::Default);
    let set = plain.max_registers(64).threads_per_block(128).optimization_level(3);
    let set = set.debug_info(true).line_info(false).verbose(true);
    assert_eq!(numbers(&set), (Some(64), Some(128), Some(3)));
    assert_eq!(switches(&set), (Some(true), Some(false), Some(true)));
    let set = set.target(sys::CU_TARGET_COMPUTE_90).fallback(JitFallback::PreferBinary);
    assert_eq!(set.get_target(), Some(sys::CU_TARGET_COMPUTE_90));
    assert_eq!(set.get_fallback(), Some(JitFallback::PreferBinary));
    for cache in [JitCache::Global, JitCache::All, JitCache::Default] {
        assert_eq!(set.clone().cache(cache).get_cache(), cache);
    }

    let plain = Program::new("text");
    assert_eq!((plain.source(), plain.get_name()), ("text", "default_program"));
    assert_eq!((plain.get_capability(), plain.get_architecture()), (None, None));
    assert_eq!((plain.headers().count(), plain.options().count()), (0, 0));
    let set = plain.name("a.cu").header("b.h", "int b;").option("-lineinfo").define("N", 3);
    assert_eq!(set.get_name(), "a.cu");
    assert!(set.headers().eq([("b.h", "int b;")]));
    assert!(set.options().eq(["-lineinfo", "--define-macro=N=3"]));
    let set = set.name_expression("scale<float>").capability(90);
    assert!(set.name_expressions().eq(["scale<float>"]));
    assert_eq!((set.get_capability(), set.get_architecture()), (Some(90), None));
    let set = set.architecture("90a");
    assert_eq!((set.get_capability(), set.get_architecture()), (None, Some("90a")));
}

#[test]
fn other_options_say_what_was_set() {
    let plain = CommunicatorOptions::new();
    assert_eq!((plain.get_limit(), plain.get_blocking()), (Duration::from_secs(600), None));
    let set = plain.limit(Duration::from_secs(3)).blocking(true);
    assert_eq!((set.get_limit(), set.get_blocking()), (Duration::from_secs(3), Some(true)));
    let blocks =
        |it: CommunicatorOptions| (it.get_min_ctas(), it.get_max_ctas(), it.get_cga_cluster_size());
    assert_eq!(blocks(plain), (None, None, None));
    assert_eq!(
        blocks(set.min_ctas(2).max_ctas(4).cga_cluster_size(0)),
        (NonZero::new(2), NonZero::new(4), Some(0))
    );

    let plain = NvtxEvent::new("step");
    assert_eq!((plain.get_name(), plain.get_color(), plain.get_category()), ("step", None, 0));
    assert_eq!(plain.get_payload(), NvtxPayload::None);
    let set = plain.color(0xff00_ff00).category(7).payload(3u64);
    assert_eq!((set.get_color(), set.get_category()), (Some(0xff00_ff00), 7));
    assert_eq!(set.get_payload(), NvtxPayload::Unsigned(3));
}
