//! M14: a machine without a driver, one without NVRTC, and one without NCCL.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cuda_core::nccl;
use cuda_core::nvrtc::{self, Program};
use cuda_core::{
    Allocator, CachingPool, Context, Device, DeviceGroup, Error, NcclError, PointerAttributes,
    Rejected, Result, Stream, Uuid, Version, set_default_allocator, with_allocator,
};

use support::child;

const NOWHERE: &str = "/nonexistent/libcuda.so.1";

#[test]
fn m14_no_driver() {
    let environment = [("CUDA_SYS_LIBRARY", Some(NOWHERE)), ("CUDA_TESTS_SIM", None)];
    if child::ran(concat!(module_path!(), "::m14_no_driver"), &environment) {
        return;
    }
    // Twice: the second call must give the same answer.
    for _ in 0..2 {
        absent("driver_version", cuda_core::driver_version());
        absent("Device::get", Device::get(0));
        absent("Device::count", Device::count());
        absent("Device::all", Device::all().map(|devices| devices.len()));
        absent("Device::by_pci_bus_id", Device::by_pci_bus_id("0000:00:00.0"));
        absent("Context::current", Context::current());
        absent("Context::pop", Context::pop());
        absent("trim_staging", cuda_core::staging::trim());
        absent("PinnedPool::trim", cuda_core::PinnedPool::shared().trim(0));
        absent("Device::by_uuid", Device::by_uuid(Uuid::from_bytes([1; 16])));
        absent("PointerAttributes", PointerAttributes::of_device(4096));
        absent("Device::contexts", Device::contexts([]));
        absent("DeviceGroup::all", DeviceGroup::all().map(|group| group.len()));
        absent("Library", cuda_core::Library::from_ptx(".version 7.0").map(drop));
        // SAFETY: without a driver, no code can look at the handle.
        let foreign = unsafe { Context::from_raw(std::ptr::null_mut(), Arc::new(())) };
        absent("Context::from_raw", foreign.map_err(Error::from));
        assert!(!Device::is_available());
        // Neither this call nor unused pools and allocators call the driver.
        assert!(cuda_core::runtime_version().is_none_or(|version| version.major > 0));
        let pool = CachingPool::shared().expect("the environment sets no limit");
        absent("CachingPool::trim", pool.trim(0));
        set_default_allocator(&Allocator::cache()).expect("no scope");
        let group = with_allocator(&pool.allocator(), DeviceGroup::all);
        absent("in a scope", group.map(drop));
        cuda_core::drops::flush();
        cuda_core::drops::take_hook();
        assert_eq!(cuda_core::drops::failures(), 0);
    }
    // From any thread.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| absent("Device::get", Device::get(0)));
        }
    });
    child::done();
}

#[test]
fn m_nvrtc_absent() {
    const NOWHERE: &str = "/nonexistent/libnvrtc.so.13";
    let environment = [("CUDA_CORE_NVRTC", Some(NOWHERE))];
    if child::ran(concat!(module_path!(), "::m_nvrtc_absent"), &environment) {
        return;
    }
    // Twice: the second call gives the same answer and lists what was tried: only what the
    // environment names.
    for _ in 0..2 {
        let answers = [
            nvrtc::version().map(drop),
            nvrtc::supported_architectures().map(drop),
            nvrtc::compile("").map(drop),
            Program::new("").capability(90).compile_cubin().map(drop),
        ];
        for answer in answers {
            match answer {
                Err(error @ Error::NoNvrtc { .. }) => {
                    let tried = error.to_string();
                    assert!(tried.contains("CUDA_CORE_NVRTC names another"), "{tried}");
                    assert!(tried.contains(NOWHERE), "{tried}");
                    assert!(!tried.contains("libnvrtc.so.12"), "{tried}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    child::done();
}

/// The folder of a toolkit's headers, and that of one for several targets.
const INCLUDES: [&str; 2] = match cfg!(target_arch = "aarch64") {
    true => ["include", "targets/sbsa-linux/include"],
    false => ["include", "targets/x86_64-linux/include"],
};

#[test]
fn m_nvrtc_headers_of_a_toolkit() {
    if !child::is_this() {
        let folder = std::env::temp_dir().join(format!("toolkit-{}", std::process::id()));
        let named = [("CUDA_HOME", "CUDA_PATH"), ("CUDA_PATH", "CUDA_HOME")];
        for ((variable, other), include) in named.into_iter().zip(INCLUDES) {
            let (toolkit, include) = (folder.join(variable), folder.join(variable).join(include));
            std::fs::create_dir_all(include.join("cccl")).expect("there is no such folder");
            std::fs::write(include.join("cuda_fp16.h"), "").expect("it is new");
            let environment = [(variable, toolkit.to_str()), (other, Some("/nonexistent"))];
            child::run(concat!(module_path!(), "::m_nvrtc_headers_of_a_toolkit"), &environment);
        }
        std::fs::remove_dir_all(folder).expect("it was made above");
        return;
    }
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().zip(INCLUDES);
    let named = named.filter_map(|(name, include)| Some((std::env::var_os(name)?, include)));
    let mut includes =
        named.map(|(toolkit, include)| std::path::PathBuf::from(toolkit).join(include));
    let include = includes.find(|include| !include.starts_with("/nonexistent"));
    let include = include.expect("one of them");
    let found = Program::new("").define("N", 1).toolkit_headers().expect("it has headers");
    let options: Vec<_> = found.options().map(|option| option.to_string_lossy()).collect();
    let [cccl, include] =
        [include.join("cccl"), include].map(|it| format!("--include-path={}", it.display()));
    assert_eq!(options, ["--define-macro=N=1", &*cccl, &*include]);
    child::done();
}

/// Of NCCL 2.17.
unsafe extern "C" fn old_version(version: *mut c_int) -> c_int {
    // SAFETY: the caller's place for one number.
    unsafe { *version = 21701 };
    0
}

#[test]
fn m_nccl_too_old() {
    if child::ran(concat!(module_path!(), "::m_nccl_too_old"), &[]) {
        return;
    }
    let symbol = |name: &CStr| match name {
        name if name == c"ncclGetVersion" => old_version as *const c_void,
        // It lacks what came after.
        _ => ptr::null(),
    };
    // SAFETY: the only function has the signature of that name.
    let refused = unsafe { nccl::install(symbol) };
    let is_old = |error: &NcclError| matches!(error, NcclError::TooOld { found, .. } if *found == Version::new(2, 17));
    assert!(matches!(&refused, Err(Error::Nccl(error)) if is_old(error)), "{refused:?}");
    child::done();
}

#[test]
fn m_nccl_absent() {
    const NOWHERE: &str = "/nonexistent/libnccl.so.2";
    let environment = [("CUDA_CORE_NCCL", Some(NOWHERE)), ("CUDA_TESTS_SIM", Some("1"))];
    if child::ran(concat!(module_path!(), "::m_nccl_absent"), &environment) {
        return;
    }
    // Not by `simulator`, which installs the simulated NCCL, too.
    cuda_sim::install(cuda_sim::Config::from_env().devices(1)).expect("it is the first");
    let device = Device::get(0).expect("the simulated one");
    let context = device.context().expect("the primary one");
    let group = DeviceGroup::new([device]).expect("of one device");
    let mut sums = group.alloc_zeroed::<u32>(1).expect("little memory");
    // Twice: the second call gives the same answer.
    for _ in 0..2 {
        let answers = [
            nccl::version().map(drop),
            nccl::UniqueId::new().map(drop),
            nccl::Ranks::init_all([&context]).map(drop),
            group.all_reduce_in_place(&mut sums, nccl::Reduction::Sum),
        ];
        for answer in answers {
            match answer {
                Err(Error::Nccl(error)) if matches!(*error, NcclError::NotFound { .. }) => {
                    let tried = error.to_string();
                    assert!(tried.contains("CUDA_CORE_NCCL names another"), "{tried}");
                    assert!(tried.contains(NOWHERE), "{tried}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    child::done();
}

#[test]
fn m_nccl_too_old_for_a_function() {
    let environment = [("CUDA_TESTS_SIM", Some("1"))];
    if child::ran(concat!(module_path!(), "::m_nccl_too_old_for_a_function"), &environment) {
        return;
    }
    cuda_sim::install(cuda_sim::Config::from_env().devices(1)).expect("it is the first");
    let of_2_18 = |name: &CStr| match name.to_bytes() {
        b"ncclCommRegister"
        | b"ncclCommDeregister"
        | b"ncclCommShrink"
        | b"ncclCommInitRankScalable"
        | b"ncclCommGetUniqueId"
        | b"ncclCommGrow" => ptr::null(),
        _ => cuda_sim::symbol(name),
    };
    // SAFETY: the simulated NCCL's functions have the signatures of `nccl.h`.
    unsafe { nccl::install(of_2_18) }.expect("no function of 2.18 is missing");
    let context = Device::get(0).and_then(Device::context).expect("the simulated one");
    let ranks = nccl::Ranks::init_all([&context]).expect("one rank");
    let buffer = context.alloc::<u8>(1 << 21).expect("little memory");
    let Rejected { error, value } = ranks.register(buffer).expect_err("there is no such function");
    // SAFETY: nothing is enqueued.
    let alone = &unsafe { ranks.into_communicators() }[0];
    let shrunk = alone.shrink(&[1]).expect_err("nor this one");
    let growth_id = alone.growth_id().expect_err("nor this one");
    let grown = alone.grow(2).expect_err("nor this one");
    let id = nccl::UniqueId::new().expect("of 2.18");
    let options = nccl::CommunicatorOptions::new();
    // SAFETY: nothing is enqueued.
    let joined = unsafe { nccl::Communicator::join_grown(&context, id, 1, 2, &options) };
    // SAFETY: as above.
    let several = unsafe { nccl::Communicator::init_rank(&context, [id; 2], 0, 2) };
    let all = [
        (error, "ncclCommRegister"),
        (shrunk, "ncclCommShrink"),
        (growth_id, "ncclCommGetUniqueId"),
        (grown, "ncclCommGrow"),
        (joined.expect_err("nor this one"), "ncclCommGrow"),
        (several.expect_err("nor this one"), "ncclCommInitRankScalable"),
    ];
    for (error, op) in all {
        let missing = |error: &Error| matches!(error, Error::Nccl(it) if matches!(&**it, NcclError::Missing { op: it, .. } if *it == op));
        assert!(missing(&error), "{error}");
        assert!(error.to_string().contains("NCCL 2.29 does not have it"), "{error}");
    }
    value.close().expect("it is not registered");
    child::done();
}

#[test]
fn m_nccl_calls_that_return_early_by_the_environment() {
    let environment = [("CUDA_TESTS_SIM", Some("2")), ("NCCL_COMM_BLOCKING", Some("0"))];
    let name = concat!(module_path!(), "::m_nccl_calls_that_return_early_by_the_environment");
    if child::ran(name, &environment) {
        return;
    }
    cuda_sim::install(cuda_sim::Config::from_env().devices(2)).expect("it is the first");
    // SAFETY: the simulated NCCL's functions have the signatures of `nccl.h`.
    unsafe { nccl::install(cuda_sim::symbol) }.expect("no function is missing");
    let work = || -> Result<()> {
        let contexts = Device::contexts(Device::all()?)?;
        let streams: Vec<_> = contexts.iter().map(Context::create_stream).collect::<Result<_>>()?;
        let ranks = nccl::Ranks::init_all(&contexts)?;
        let ones = |stream: &Stream| stream.upload_new(&[1u32; 8]);
        let mut sums: Vec<_> = streams.iter().map(ones).collect::<Result<_>>()?;
        for round in 0..20 {
            ranks.on(&streams)?.all_reduce_in_place(&mut sums, nccl::Reduction::Sum)?;
            assert_eq!(streams[0].download_vec(&sums[0])?, [2 << round; 8]);
        }
        // SAFETY: all ranks split.
        let ranks = unsafe { ranks.into_communicators() };
        std::thread::scope(|scope| {
            let split = |rank: usize| ranks[rank].split(Some(0), 0).map(|made| made.is_some());
            let other = scope.spawn(move || split(1));
            assert!(split(0)? && other.join().expect("no panic")?);
            Ok(())
        })
    };
    work().expect("NCCL is asked until it is done");
    child::done();
}

#[track_caller]
fn absent<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    match result {
        Err(error @ Error::NoDriver(_)) => {
            let text = error.to_string();
            assert!(text.contains(NOWHERE), "{what}: {text}");
            let code = cuda_sys::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
            assert_eq!(error.code(), Some(code), "{what}");
            assert!(!error.is_sticky() && !error.is_not_ready(), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}
