//! Groups, and what a process does once for all devices.

use cuda_core::{
    Device, DeviceGroup, Error, MemoryPool, PeerAccess, Result, virtual_memory::VirtualBuffer,
};
use cuda_sim::{Config, Fault, Session};
use support::context;

use support::child;

const RETAIN: &str = "cuDevicePrimaryCtxRetain";

/// A process of its own with this simulated machine, in which only `body` runs.
fn alone(name: &str, config: Config, body: fn(&Session) -> Result<()>) -> Result<()> {
    if child::ran(&format!("{}::{name}", module_path!()), &[]) {
        return Ok(());
    }
    cuda_sim::install(config).expect("a process without a driver");
    let session = Session::begin();
    body(&session)?;
    assert!(context::current().is_null(), "something is current");
    session.settle();
    assert_eq!(session.violations(), []);
    child::done();
    Ok(())
}

#[test]
fn contexts_are_retained_at_the_same_time() -> Result<()> {
    let config = Config::from_env().devices(4);
    alone("contexts_are_retained_at_the_same_time", config, |session| {
        let begin = session.mark();
        let contexts = Device::contexts(Device::all()?)?;
        assert_eq!(contexts.len(), 4);
        let calls = session.since(begin);
        let retains: Vec<_> = calls.iter().filter(|call| call.name == RETAIN).collect();
        assert_eq!(retains.len(), 4, "one for each device");
        // Nothing was current on the calling thread or the worker threads, so there was nothing
        // to restore.
        assert_eq!(session.calls("cuCtxSetCurrent"), 0);
        Device::contexts(Device::all()?)?;
        assert_eq!(session.calls(RETAIN), 4);
        Ok(())
    })
}

#[test]
fn a_context_that_cannot_be_had_costs_no_other() -> Result<()> {
    let config = Config::from_env().devices(4);
    alone("a_context_that_cannot_be_had_costs_no_other", config, |session| {
        let code = cuda_sys::CUDA_ERROR_OUT_OF_MEMORY;
        session.inject(Fault::new(code).function(RETAIN).nth(2));
        let failed = Device::contexts(Device::all()?).expect_err("one of them fails");
        let Error::OnDevice { device, .. } = failed else {
            panic!("{failed}");
        };
        assert_eq!(failed.code(), Some(code));
        assert_eq!(session.calls(RETAIN), 4, "all were tried");
        for other in Device::all()? {
            assert_eq!(other.primary_state()?.is_active, other.ordinal() != device, "{other:?}");
        }
        let group = DeviceGroup::all()?;
        assert_eq!(session.calls(RETAIN), 5, "only that one was missing");
        drop(group);
        Ok(())
    })
}

#[test]
fn of_several_errors_the_first_devices_is_returned() -> Result<()> {
    let config = Config::from_env().devices(3);
    alone("of_several_errors_the_first_devices_is_returned", config, |session| {
        let code = cuda_sys::CUDA_ERROR_NOT_PERMITTED;
        session.inject(Fault::new(code).function(RETAIN).from_then_on());
        let order = [Device::get(2)?, Device::get(0)?, Device::get(1)?];
        for _ in 0..2 {
            let failed = DeviceGroup::new(order).expect_err("all of them fail");
            assert!(matches!(failed, Error::OnDevice { device: 2, .. }), "{failed}");
        }
        assert_eq!(session.calls(RETAIN), 6);
        session.clear_faults();
        assert_eq!(DeviceGroup::new(order)?.len(), 3);
        Ok(())
    })
}

#[test]
fn k06_pairs_that_cannot_reach_each_other() -> Result<()> {
    let config = Config::from_env().devices(3).without_peer_access(1, 0);
    alone("k06_pairs_that_cannot_reach_each_other", config, |session| {
        let group = DeviceGroup::all()?;
        let (a, b, c) = (Device::get(0)?, Device::get(1)?, Device::get(2)?);
        assert_eq!(group.enable_all_peers()?, [(b, a)]);
        // A device supports only so many peers at a time.
        group.disable_all_peers()?;
        let full = cuda_sys::CUDA_ERROR_TOO_MANY_PEERS;
        session.inject(Fault::new(full).function("cuCtxEnablePeerAccess").nth(2));
        assert_eq!(group.enable_all_peers()?, [(a, c), (b, a)]);
        // Copies still work.
        let mut buffers = group.alloc_zeroed::<u8>(300)?;
        group.streams()[1].fill(&mut buffers[1], 7)?;
        group.broadcast_in_place(&mut buffers, 1)?;
        let mut back = [0; 900];
        group.gather(&buffers, &mut back)?;
        assert_eq!(back, [7; 900]);
        // Any other error stops the call, and names the device.
        group.disable_all_peers()?;
        let code = cuda_sys::CUDA_ERROR_INVALID_CONTEXT;
        session.inject(Fault::new(code).function("cuCtxEnablePeerAccess").nth(3));
        let failed = group.enable_all_peers().expect_err("it fails");
        assert!(matches!(failed, Error::OnDevice { device: 1, .. }), "{failed}");
        drop(buffers);
        group.disable_all_peers()
    })
}

#[test]
fn k06_no_permission() -> Result<()> {
    let config = Config::from_env().devices(2).without_peer_access(1, 0);
    alone("k06_no_permission", config, |_| {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        assert!(!there.can_access_peer(here)?);
        let stream = here.create_stream()?;
        let pool = MemoryPool::builder(here).build()?;
        let mut pooled = stream.alloc_from::<u8>(&pool, 1000)?;
        let mut mapped = VirtualBuffer::<u8>::new(&here.context()?, 1 << 20)?;
        mapped.grow_to(1000)?;
        for access in [PeerAccess::Read, PeerAccess::ReadWrite] {
            let refused = pool.set_access(there, access).expect_err("it cannot be reached");
            assert_eq!(refused.code(), Some(cuda_sys::CUDA_ERROR_INVALID_VALUE));
            let refused = mapped.set_access(there, access).expect_err("nor can that");
            assert!(matches!(refused, Error::Unsupported { device: 1, .. }), "{refused}");
            assert_eq!(pool.access(there)?, PeerAccess::None);
            assert_eq!(mapped.access(there)?, PeerAccess::None);
        }
        // Copies still arrive.
        let far = there.create_stream()?;
        let mut target = far.alloc::<u8>(1000)?;
        let mut back = [0; 1000];
        stream.fill(&mut pooled, 6)?;
        far.copy(&pooled, &mut target)?;
        far.download(&target, &mut back)?;
        assert_eq!(back, [6; 1000]);
        stream.fill(&mut mapped, 7)?;
        far.copy(&mapped, &mut target)?;
        far.download(&target, &mut back)?;
        assert_eq!(back, [7; 1000]);
        // The other direction works.
        let other = MemoryPool::builder(there).build()?;
        other.set_access(here, PeerAccess::ReadWrite)
    })
}
