//! H14, I, F: what the environment sets for the allocator and for pinned memory.

use cuda_core::{
    Allocator, CachingPool, Device, Error, PinnedBuffer, PinnedPool, Result, pinned::PinnedBackend,
    pools::PoolLimit, set_default_allocator,
};
use cuda_sim::{Config, Session};

use support::{child, refusal};

const LIMIT: &str = "CUDA_CORE_POOL_LIMIT";
const ALLOCATOR: &str = "CUDA_CORE_ALLOCATOR";
const PINNED: &str = "CUDA_CORE_PINNED";

/// The unit of the pool.
const U: usize = 2 << 20;

/// Runs a test again in a process for each value of a variable.
fn with_each(name: &str, variable: &str, values: &[&str]) {
    for value in values {
        let mut environment = [(LIMIT, None), (ALLOCATOR, None), (PINNED, None)];
        for (name, set) in &mut environment {
            *set = (*name == variable).then_some(*value);
        }
        child::run(&format!("{}::{name}", module_path!()), &environment);
    }
}

/// The variable's value in the child, and a simulated driver for it.
fn found(variable: &str) -> (String, Session) {
    cuda_sim::install(Config::from_env().devices(1)).expect("a process without a driver");
    let value = std::env::var(variable).expect("set by the parent");
    (value, Session::begin())
}

/// Asserts that the error quotes the value that could not be parsed.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, value: &str) {
    let why = refusal(result);
    assert!(why.contains(&format!("{value:?}")), "{why}");
}

#[test]
fn b_what_hides_devices_is_named() -> Result<()> {
    const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
    if !child::is_this() {
        for list in [Some(""), Some("0"), None] {
            let name = concat!(module_path!(), "::b_what_hides_devices_is_named");
            child::run(name, &[(VISIBLE, list), ("CUDA_SIM_DEVICES", Some("2"))]);
        }
        return Ok(());
    }
    cuda_sim::install(Config::from_env()).expect("a process without a driver");
    let error = Device::get(7).expect_err("there are two at most").to_string();
    let expected = match std::env::var(VISIBLE).as_deref() {
        Ok("") => "detected (CUDA_VISIBLE_DEVICES is \"\")",
        Ok(_) => "device 7 does not exist: there are 1 (CUDA_VISIBLE_DEVICES is \"0\")",
        Err(_) => "device 7 does not exist: there are 2",
    };
    assert!(error.ends_with(expected), "{error}");
    child::done();
    Ok(())
}

#[test]
fn h14_limit_env() -> Result<()> {
    const GOOD: [&str; 6] = ["6291456", "6MiB", "50%", "0", "0%", ""];
    const BAD: [&str; 4] = ["101%", "-1", "abc", "6 MB"];
    if !child::is_this() {
        with_each("h14_limit_env", LIMIT, &[&GOOD[..], &BAD].concat());
        return Ok(());
    }
    let (value, _session) = found(LIMIT);
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    if BAD.contains(&value.as_str()) {
        for _ in 0..2 {
            refused(CachingPool::shared(), &value);
            let why = CachingPool::shared().expect_err("refused").to_string();
            assert!(why.starts_with("CUDA_CORE_POOL_LIMIT: "), "{why}");
            refused(stream.alloc::<u8>(100), &value);
        }
        // The setting does not affect other allocators.
        drop(stream.alloc_with::<u8>(&Allocator::driver_pool(), 100)?);
        drop(stream.alloc_with::<u8>(&CachingPool::new().allocator(), 100)?);
        child::done();
        return Ok(());
    }
    let pool = CachingPool::shared()?;
    let total = device.total_memory()?;
    let (limit, bytes) = match value.as_str() {
        "6291456" | "6MiB" => (PoolLimit::Bytes(3 * U), Some(3 * U)),
        "50%" => (PoolLimit::Fraction(0.5), Some(total / 2)),
        _ => (PoolLimit::None, None),
    };
    assert_eq!(pool.limit(), limit);
    let held = stream.alloc::<u8>(3 * U)?;
    assert_eq!(pool.usage(device).limit, bytes);
    let most = bytes.unwrap_or(total);
    match stream.alloc::<u8>(most) {
        Err(Error::PoolExhausted(it)) => {
            assert_eq!((it.requested, it.usage.limit), (most, bytes));
        }
        other => panic!("beyond the limit: {other:?}"),
    }
    // A call by the program overrides the environment.
    drop(held);
    pool.trim(0)?;
    pool.set_limit(PoolLimit::Bytes(U))?;
    assert!(stream.alloc::<u8>(U + 1).is_err());
    child::done();
    Ok(())
}

#[test]
#[cfg(unix)]
fn h14_limit_env_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt;

    if !child::is_this() {
        with_each("h14_limit_env_that_is_no_text", LIMIT, &["set by the child"]);
        return;
    }
    let limit = std::ffi::OsStr::from_bytes(b"6MiB\xff");
    // SAFETY: no other thread of this process reads or writes the environment now.
    unsafe { std::env::set_var(LIMIT, limit) };
    cuda_sim::install(Config::from_env().devices(1)).expect("a process without a driver");
    refused(CachingPool::shared(), &limit.to_string_lossy());
    child::done();
}

#[test]
fn i_allocator_env() -> Result<()> {
    const GOOD: [&str; 4] = ["cache", "driver", "plain", ""];
    const BAD: [&str; 4] = ["Driver", "Cache", "driver ", "none"];
    if !child::is_this() {
        with_each("i_allocator_env", ALLOCATOR, &[&GOOD[..], &BAD].concat());
        return Ok(());
    }
    let (value, session) = found(ALLOCATOR);
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    if BAD.contains(&value.as_str()) {
        refused(stream.alloc::<u8>(100), &value);
        refused(set_default_allocator(&Allocator::cache()), &value);
        drop(stream.alloc_with::<u8>(&Allocator::cache(), 100)?);
        child::done();
        return Ok(());
    }
    let two = (stream.alloc::<u8>(100)?, stream.alloc::<u8>(100)?);
    let asked = ["cuMemAlloc_v2", "cuMemAllocAsync"].map(|name| session.calls(name));
    let expected = match value.as_str() {
        "cache" | "" => [1, 0],
        "driver" => [0, 2],
        _ => [2, 0],
    };
    assert_eq!(asked, expected, "{value}");
    let in_pool = CachingPool::shared()?.usage(device).used > 0;
    assert_eq!(in_pool, ["cache", ""].contains(&value.as_str()));
    drop(two);
    child::done();
    Ok(())
}

#[test]
fn f03_pinned_env() -> Result<()> {
    const GOOD: [&str; 4] = ["slab", "driver", " driver\n", ""];
    const BAD: [&str; 3] = ["Driver", "drivers", "0"];
    if !child::is_this() {
        with_each("f03_pinned_env", PINNED, &[&GOOD[..], &BAD].concat());
        return Ok(());
    }
    let (value, session) = found(PINNED);
    let context = Device::get(0)?.context()?;
    if BAD.contains(&value.as_str()) {
        for _ in 0..2 {
            refused(PinnedBuffer::<u8>::new(&context, 100), &value);
        }
        // A call by the program overrides the environment.
        PinnedPool::set_backend(PinnedBackend::Driver);
    }
    let two = [100, 100].map(|len| PinnedBuffer::<u8>::new(&context, len));
    let allocated = session.calls("cuMemHostAlloc");
    let by_slabs = ["slab", ""].contains(&value.as_str());
    assert_eq!(allocated == 2, !by_slabs, "{value}: {allocated} calls");
    for buffer in two {
        drop(buffer?);
    }
    child::done();
    Ok(())
}
