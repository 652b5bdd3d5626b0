//! K: peers.

use cuda_core::{Access, Allocator, Context, Device, DeviceBuffer, Error, Result, Stream};
use cuda_sys::{CUresult, cuDeviceCanAccessPeer, cuMemcpyAsync};
use support::{check, context, gpu_test, pattern};

use crate::forms::{contents, same, scaled, varied};

/// Two devices without access to each other's memory, both at first and after this is dropped.
pub(crate) struct Pair {
    pub(crate) devices: [Device; 2],
    pub(crate) contexts: [Context; 2],
}

impl Pair {
    pub(crate) fn new() -> Result<Self> {
        let devices = [Device::get(0)?, Device::get(1)?];
        let contexts = [devices[0].context()?, devices[1].context()?];
        assert!(devices[0].can_access_peer(devices[1])?, "needs GPUs that reach each other");
        let pair = Self { devices, contexts };
        pair.close();
        Ok(pair)
    }

    fn close(&self) {
        let [a, b] = &self.contexts;
        // Fails in most tests, since they left no access enabled.
        let _ = (a.disable_peer_access(b), b.disable_peer_access(a));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
    }
}

fn code(result: Result<()>) -> Option<CUresult> {
    result.expect_err("the driver refuses").code()
}

gpu_test! {
    needs 2;
    fn k01_can_access() -> Result<()> {
        let count = Device::count()?;
        for (a, b) in [(0, 1), (1, 0)] {
            let mut expected = 0;
            // SAFETY: `expected` is valid for the one number that the driver writes.
            check("cuDeviceCanAccessPeer", unsafe {
                cuDeviceCanAccessPeer(&mut expected, context::device(a), context::device(b))
            });
            let can = Device::get(a)?.can_access_peer(Device::get(b)?)?;
            assert_eq!(can, expected != 0, "{a} to {b}");
        }
        let zero = Device::get(0)?;
        assert!(!zero.can_access_peer(zero)?, "no peer of itself");
        match Device::get(100) {
            Err(Error::NoSuchDevice { ordinal, count: shown, .. }) => {
                assert_eq!((ordinal, shown), (100, count));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k02_enable_idempotent() -> Result<()> {
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        a.enable_peer_access(b)?;
        a.enable_peer_access(b)?;
        // The failed call leaves no error for later calls.
        a.synchronize()?;
        b.synchronize()?;
        let stream = a.create_stream()?;
        assert_eq!(contents(&stream, &stream.alloc_zeroed(3)?)?, [0; 3]);
        // Enabling twice counts once.
        a.disable_peer_access(b)?;
        let again = code(a.disable_peer_access(b));
        assert_eq!(again, Some(cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
        // After it was disabled, access can be enabled again.
        a.enable_peer_access(b)?;
        a.disable_peer_access(b)
    }
}

gpu_test! {
    needs 2;
    fn k03_disable_not_enabled() -> Result<()> {
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        let refused = code(a.disable_peer_access(b));
        assert_eq!(refused, Some(cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
        // Access in one direction does not imply the other.
        b.enable_peer_access(a)?;
        let refused = code(a.disable_peer_access(b));
        assert_eq!(refused, Some(cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
        b.disable_peer_access(a)
    }
}

/// Copies from one device to the other and back, on a stream of each.
fn there_and_back(pair: &Pair, len: usize) -> Result<()> {
    let [home, away] = [pair.devices[0].create_stream()?, pair.devices[1].create_stream()?];
    let bytes = varied(len as u64, len);
    let mut source = home.alloc::<u8>(len)?;
    home.upload(&bytes, &mut source)?;
    for (there, back) in [(&home, &home), (&home, &away), (&away, &home), (&away, &away)] {
        let mut middle = away.alloc_zeroed::<u8>(len)?;
        let mut target = home.alloc_zeroed::<u8>(len)?;
        there.copy(&source, &mut middle)?;
        back.copy(&middle, &mut target)?;
        same(&contents(&home, &target)?, &bytes, &format!("{len} bytes"));
    }
    Ok(())
}

gpu_test! {
    needs 2;
    fn k04_copy_without_enable() -> Result<()> {
        let pair = Pair::new()?;
        for len in [0, 1, 4097, scaled(64 << 20, 8 << 20, 1 << 20) + 1] {
            there_and_back(&pair, len)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k04_copy_with_access() -> Result<()> {
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        a.enable_peer_access(b)?;
        there_and_back(&pair, 4097)?;
        b.enable_peer_access(a)?;
        there_and_back(&pair, 4097)?;
        there_and_back(&pair, scaled(64 << 20, 8 << 20, 1 << 20) + 1)
    }
}

gpu_test! {
    needs 2;
    fn k04_copy_to_any_range() -> Result<()> {
        let pair = Pair::new()?;
        let [home, away] = [pair.devices[0].create_stream()?, pair.devices[1].create_stream()?];
        let mut source = home.alloc::<u8>(1000)?;
        home.upload(&pattern(4, 1000), &mut source)?;
        let mut target = away.alloc::<u8>(1000)?;
        away.fill(&mut target, 0x44)?;
        home.copy(source.slice(3..503)?, target.slice_mut(255..755)?)?;
        let mut expected = vec![0x44; 1000];
        expected[255..755].copy_from_slice(&pattern(4, 1000)[3..503]);
        same(&contents(&away, &target)?, &expected, "a part of each");
        Ok(())
    }
}

gpu_test! {
    needs 4;
    fn k04_copy_on_a_third_device_s_stream() -> Result<()> {
        let [a, b] = [Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?];
        let (source, mut target) = (a.alloc_zeroed::<u8>(8)?, b.alloc_zeroed::<u8>(8)?);
        let third = Device::get(2)?.create_stream()?;
        let refused = third.copy(&source, &mut target).expect_err("neither device's stream");
        assert!(matches!(refused, Error::WrongDevice(ref it) if it.stream == 2), "{refused:?}");
        Ok(())
    }
}

/// Returns the driver's code for a raw copy between the two buffers, which is complete when it returns.
fn raw_copy(stream: &Stream, from: &DeviceBuffer<u8>, to: &DeviceBuffer<u8>) -> Result<CUresult> {
    from.synchronize()?;
    to.synchronize()?;
    // Without a current context, driver 580 crashes instead of refusing the copy.
    let _current = stream.context().enter()?;
    // SAFETY: both buffers have this many bytes; nothing else uses them, since they are idle and
    // borrowed, and the stream is waited for below.
    let code =
        unsafe { cuMemcpyAsync(to.as_raw(), from.as_raw(), from.byte_len(), stream.as_raw()) };
    // Noted, so that the buffers are protected even if the wait fails.
    // SAFETY: the copy reads the buffer, and nothing else uses its address.
    unsafe { from.note_use(stream, Access::Read) }?;
    // SAFETY: the copy writes the buffer, and nothing else uses its address.
    unsafe { to.note_use(stream, Access::Write) }?;
    stream.synchronize()?;
    Ok(code)
}

gpu_test! {
    needs 2;
    fn k06_pool_access() -> Result<()> {
        const LEN: usize = 70_001;
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        let [home, away] = [a.create_stream()?, b.create_stream()?];
        let bytes = varied(6, LEN);
        let pool = Allocator::driver_pool();
        let mut source = home.alloc_with::<u8>(&pool, LEN)?;
        home.upload(&bytes, &mut source)?;
        let mut target = away.alloc_with::<u8>(&pool, LEN)?;

        let closed = cuda_sys::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(raw_copy(&away, &source, &target)?, closed, "before it is granted");
        b.enable_peer_access(a)?;
        assert_eq!(raw_copy(&away, &source, &target)?, cuda_sys::CUDA_SUCCESS, "granted");
        same(&contents(&away, &target)?, &bytes, "read by the other device");
        // Memory allocated later is accessible too.
        let mut later = home.alloc_with::<u8>(&pool, LEN)?;
        home.upload(&bytes, &mut later)?;
        away.fill(&mut target, 0)?;
        assert_eq!(raw_copy(&away, &later, &target)?, cuda_sys::CUDA_SUCCESS);
        same(&contents(&away, &target)?, &bytes, "allocated after the grant");

        b.disable_peer_access(a)?;
        assert_eq!(raw_copy(&away, &source, &target)?, closed, "revoked");
        away.fill(&mut target, 0)?;
        away.copy(&source, &mut target)?;
        same(&contents(&away, &target)?, &bytes, "by the slower path");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k06_revoked_under_way() -> Result<()> {
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        let [home, away] = [a.create_stream()?, b.create_stream()?];
        let len = scaled(64 << 20, 1 << 20, 1 << 16);
        let mut source = home.alloc::<u8>(len)?;
        home.fill(&mut source, 0x6B)?;
        let mut target = away.alloc_zeroed::<u8>(len)?;
        b.enable_peer_access(a)?;
        a.enable_peer_access(b)?;
        for _ in 0..4 {
            away.copy(&source, &mut target)?;
        }
        // Queued work needs the access: disabling it waits.
        b.disable_peer_access(a)?;
        a.disable_peer_access(b)?;
        assert!(away.query()? && home.query()?, "nothing is under way any more");
        same(&contents(&away, &target)?, &vec![0x6B; len], "the copies were made");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k06_own_device() -> Result<()> {
        let pair = Pair::new()?;
        let own = &pair.contexts[0];
        let refused = own.enable_peer_access(own).expect_err("its own device");
        assert!(refused.to_string().contains("of the same device"), "{refused}");
        assert!(own.disable_peer_access(own).is_err());
        // A device always has access to its own pool.
        let stream = own.create_stream()?;
        let (source, target) = (stream.alloc_zeroed::<u8>(9)?, stream.alloc_zeroed::<u8>(9)?);
        assert_eq!(raw_copy(&stream, &source, &target)?, cuda_sys::CUDA_SUCCESS);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k07_current_unchanged() -> Result<()> {
        let pair = Pair::new()?;
        let [a, b] = &pair.contexts;
        let unchanged = |expected| {
            let step = |what: &str| assert_eq!(context::current(), expected, "after {what}");
            step("nothing");
            pair.devices[0].can_access_peer(pair.devices[1])?;
            step("can_access_peer");
            b.enable_peer_access(a)?;
            step("enable_peer_access");
            b.enable_peer_access(a)?;
            step("enable_peer_access again");
            assert!(b.enable_peer_access(b).is_err());
            step("enable_peer_access that fails");
            there_and_back(&pair, 33)?;
            step("copy with access");
            b.disable_peer_access(a)?;
            step("disable_peer_access");
            assert!(b.disable_peer_access(a).is_err());
            step("disable_peer_access that fails");
            there_and_back(&pair, 33)?;
            step("copy");
            Ok::<(), Error>(())
        };
        unchanged(std::ptr::null_mut())?;
        let _current = a.enter()?;
        unchanged(a.as_raw())
    }
}
