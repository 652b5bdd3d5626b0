//! Green contexts, if header and driver have them.

use std::ptr;

use cuda_core::{Context, Device, Error, Event, EventFlags, Result, SmResource};
use support::{context, gpu_test, refusal};

/// Splits a device into a few multiprocessors, and the rest.
fn split(ordinal: u32) -> Result<(SmResource, SmResource)> {
    let device = Device::get(ordinal)?;
    let all = device.sm_resource()?;
    assert_eq!(all.device(), device);
    assert_eq!(all.count(), device.attributes().multiprocessor_count()?);
    let split = all.split(8, 1)?;
    assert_eq!(split.groups.len(), 1);
    let few = split.groups[0].clone();
    assert!((8..all.count()).contains(&few.count()), "{few:?}");
    assert!(few.count() + split.remaining.count() <= all.count());
    Ok((few, split.remaining))
}

gpu_test! {
    needs 1, cuda_12_4;
    fn a_green_context_is_used_like_any_other() -> Result<()> {
        let (few, rest) = split(0)?;
        let (green, other) = (Context::new_green(&[&few])?, Context::new_green(&[&rest])?);
        assert_eq!(context::current(), ptr::null_mut());
        assert_ne!(green, other);
        assert!(!green.is_primary());
        assert_eq!(green.device().ordinal(), 0);

        let guard = green.enter()?;
        assert_eq!(context::current(), green.as_raw());
        guard.restore()?;
        assert_eq!(context::current(), ptr::null_mut());

        // Both green contexts and the primary context work on one buffer.
        let (a, b) = (green.create_stream()?, other.create_stream()?);
        let home = Device::get(0)?.create_stream()?;
        let mut buffer = home.alloc::<u32>(1000)?;
        a.fill(buffer.slice_mut(..500)?, 1)?;
        b.fill(buffer.slice_mut(500..)?, 2)?;
        let event = Event::new(&green, EventFlags::DEFAULT)?;
        event.record(&a)?;
        // The objects made in a context keep it alive.
        drop((green, other));
        let mut back = vec![0; 1000];
        home.download(&buffer, &mut back)?;
        assert!(back[..500].iter().all(|&x| x == 1) && back[500..].iter().all(|&x| x == 2));
        event.synchronize()
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn streams_and_resources_of_a_green_context() -> Result<()> {
        let (few, _) = split(0)?;
        let device = Device::get(0)?;
        let (green, primary) = (Context::new_green(&[&few])?, device.context()?);
        assert_eq!(green.sm_resource()?.count(), few.count());
        assert_eq!(green.sm_resource()?.device(), device);
        assert_eq!(primary.sm_resource()?.count(), device.sm_resource()?.count());
        let (least, greatest) = primary.stream_priority_range()?;
        let guard = primary.enter()?;
        for priority in [least, greatest] {
            let stream = green.stream_builder().priority(priority).build()?;
            assert_eq!(context::current(), primary.as_raw());
            assert_eq!(stream.priority()?, priority);
            assert!(!stream.is_blocking()?);
            assert_eq!(stream.context(), &green);
            let mut buffer = stream.alloc::<u32>(100)?;
            stream.fill(&mut buffer, 3)?;
            let mut back = [0; 100];
            stream.download(&buffer, &mut back)?;
            assert_eq!(back, [3; 100]);
        }
        let blocking = green.stream_builder().blocking().build();
        assert!(matches!(blocking, Err(Error::Invalid(_))), "{blocking:?}");
        guard.restore()
    }
}

gpu_test! {
    needs 2, cuda_12_4;
    fn multiprocessors_that_make_no_context() -> Result<()> {
        let none = Context::new_green(&[]);
        assert!(refusal(none).contains("given"));
        let (a, b) = (split(0)?.0, split(1)?.0);
        let two = Context::new_green(&[&a, &b]);
        assert!(refusal(two).contains("devices 0 and 1"));
        let all = Device::get(0)?.sm_resource()?;
        all.split(all.count() + 1, 1).expect_err("more than there are");
        assert!(refusal(all.split(8, 0)).contains("no groups"));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn multiprocessors_are_divided_among_as_many_groups_as_there_can_be() -> Result<()> {
        let all = Device::get(0)?.sm_resource()?;
        let split = all.split(8, u32::MAX)?;
        assert!(split.groups.len() > 1 && split.groups.iter().all(|group| group.count() >= 8));
        let of_groups: u32 = split.groups.iter().map(SmResource::count).sum();
        assert!(of_groups + split.remaining.count() <= all.count());
        Ok(())
    }
}
