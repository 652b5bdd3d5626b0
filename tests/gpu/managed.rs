//! G: managed memory.

use cuda_core::{
    Device, Error, PinnedBuffer, Pod, PointerAttributes, Result,
    image::{ArrayFlags, ArrayShape, CudaArray},
    managed::{Advice, ManagedAttach, ManagedBuffer, MemoryLocation},
};
use support::{block_on, context, gpu_test, kernels, pattern, report, two_streams};

use crate::forms::{Down, contents, same};

gpu_test! {
    needs 1;
    fn g01_round_trip() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut values = ManagedBuffer::<u8>::new(&device.context()?, 5000)?;
        values.as_mut_slice()?.copy_from_slice(&pattern(1, 5000));
        // The device reads what the host wrote, and vice versa.
        let mut copy = stream.alloc::<u8>(5000)?;
        stream.copy(&values, &mut copy)?;
        same(&contents(&stream, &copy)?, &pattern(1, 5000), "what the host wrote");
        stream.fill(values.slice_mut(1000..2000)?, 7)?;
        same(&values.as_slice()?[1000..2000], &[7; 1000], "what the device wrote");
        same(&values.as_slice()?[..1000], &pattern(1, 5000)[..1000], "beside it");
        values.as_mut_slice()?[0] = 9;
        let mut back = [0];
        stream.download(values.slice(..1)?, &mut back)?;
        assert_eq!(back, [9]);
        Ok(values.close()?)
    }
}

gpu_test! {
    needs 1;
    fn g01_made_of_a_slice_or_of_zeroes() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let context = stream.context();
        let numbers = ManagedBuffer::from_slice(context, &[1_u32, 2, 3])?;
        assert_eq!(stream.download_vec(&numbers)?, [1, 2, 3]);
        // This memory may get the address of earlier memory.
        ManagedBuffer::<u64>::new(context, 1000)?.as_mut_slice()?.fill(u64::MAX);
        let zeroes = ManagedBuffer::<u64>::zeroed(context, 1000)?;
        assert_eq!(stream.download_vec(&zeroes)?, [0; 1000]);
        assert_eq!(zeroes.as_slice()?, [0; 1000]);
        assert!(ManagedBuffer::<u64>::zeroed(context, 0)?.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g01_kernel() -> Result<()> {
        const LEN: usize = 5000;
        let device = Device::get(0)?;
        let context = device.context()?;
        let stream = device.create_stream()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut values = ManagedBuffer::<u32>::new(&context, LEN)?;
        for prefetched in [false, true] {
            for (value, index) in values.as_mut_slice()?.iter_mut().zip(0..) {
                *value = index;
            }
            if prefetched {
                values.prefetch(&stream, .., MemoryLocation::Device(device))?;
            }
            let mut launch = stream.kernel(&add_one).elements(LEN).arg(&mut values).arg(LEN as u32);
            // SAFETY: the buffer has as many elements as the kernel writes.
            unsafe { launch.launch() }?;
            if prefetched {
                values.prefetch(&stream, .., MemoryLocation::Host)?;
            }
            let back = values.as_slice()?;
            assert!(back.iter().copied().eq(1..=LEN as u32), "prefetched: {prefetched}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g01_every_element_is_aligned_and_the_whole_is_managed() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let values = ManagedBuffer::<u64>::new(&context, 100)?;
        assert_eq!((values.len(), values.byte_len()), (100, 800));
        assert_eq!(values.as_raw() % 256, 0);
        let attributes = PointerAttributes::of_device(values.as_raw() + 8)?;
        assert!(attributes.is_managed, "{attributes:?}");
        assert_eq!(attributes.device, Some(values.device()));
        assert_eq!(values.as_slice()?.as_ptr().addr() as u64, values.as_raw());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g01_too_large() -> Result<()> {
        #[derive(Clone, Copy)]
        #[repr(align(512))]
        struct Wide(#[expect(dead_code, reason = "only its size counts")] [u8; 512]);
        // SAFETY: 512 bytes without padding, of which any value is valid.
        unsafe impl Pod for Wide {}

        let context = Device::get(0)?.context()?;
        let overflow = ManagedBuffer::<u64>::new(&context, 1 << 61).expect_err("wraps to nothing");
        assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow:?}");
        let aligned = ManagedBuffer::<Wide>::new(&context, 1).expect_err("too strict");
        assert!(matches!(aligned, Error::Invalid(ref it) if it.reason.contains("elements aligned to")), "{aligned:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g04_not_managed() -> Result<()> {
        // Checked by the type: only managed memory has `prefetch` and `advise`. The driver's pointer
        // attributes agree.
        let buffer = Device::get(0)?.create_stream()?.alloc::<u8>(100)?;
        assert!(!PointerAttributes::of_device(buffer.as_raw())?.is_managed);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g01_halves_and_when_they_are_ready() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let mut values = ManagedBuffer::<u32>::new(&context, 1000)?;
        let (low, high) = values.split_at_mut(500)?;
        assert_eq!((high.device(), high.context()), (context.device(), &context));
        one.fill(low, 1)?;
        two.fill(high, 2)?;
        block_on(values.ready())?;
        assert_eq!(one.download_vec(values.slice(499..501)?)?, [1, 2]);
        block_on(values.ready_mut())?;
        assert!(values.split_at_mut(1001).is_err());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g05_zero() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut empty = ManagedBuffer::<u32>::new(&device.context()?, 0)?;
        assert!(empty.is_empty());
        empty.prefetch(&stream, .., MemoryLocation::Device(device))?;
        empty.advise(.., Advice::SetReadMostly)?;
        assert!(!empty.attributes(..)?.read_mostly);
        // SAFETY: the buffer is empty.
        unsafe { empty.attach(&stream, ManagedAttach::Single) }?;
        stream.fill(&mut empty, 1)?;
        assert_eq!(empty.as_slice()?, [0u32; 0]);
        assert_eq!(empty.as_mut_slice()?, [0u32; 0]);
        Ok(empty.close()?)
    }
}

gpu_test! {
    needs 2;
    fn g06_drop_other_device() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let mut values = ManagedBuffer::<u32>::new(&here.context()?, 1000)?;
        values.as_mut_slice()?.fill(3);
        let stream = there.create_stream()?;
        values.prefetch(&stream, .., MemoryLocation::Device(there))?;
        let guard = here.enter()?;
        let before = context::current();
        drop(values);
        assert_eq!(context::current(), before);
        guard.restore()?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn g04_advice_is_read_back() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let here = MemoryLocation::Device(device);
        // Each half has at least one page on the host and one on the device.
        let values = ManagedBuffer::<u8>::new(&device.context()?, 4 << 20)?;
        let (first, second) = (..2 << 20, 2 << 20..);
        assert!(!values.attributes(..)?.read_mostly);
        values.advise(first, Advice::SetReadMostly)?;
        assert!(values.attributes(first)?.read_mostly);
        assert!(!values.attributes(second.clone())?.read_mostly);
        assert!(!values.attributes(..)?.read_mostly, "of one half only");
        values.advise(.., Advice::UnsetReadMostly)?;
        assert!(!values.attributes(first)?.read_mostly);

        values.advise(.., Advice::SetPreferredLocation(here))?;
        assert_eq!(values.attributes(..)?.preferred_location, Some(here));
        values.advise(.., Advice::SetPreferredLocation(MemoryLocation::Host))?;
        assert_eq!(values.attributes(..)?.preferred_location, Some(MemoryLocation::Host));
        values.advise(.., Advice::UnsetPreferredLocation)?;
        assert_eq!(values.attributes(..)?.preferred_location, None);

        values.advise(.., Advice::SetAccessedBy(here))?;
        assert!(values.attributes(..)?.accessed_by.contains(&here));
        values.advise(.., Advice::UnsetAccessedBy(here))?;
        assert!(!values.attributes(..)?.accessed_by.contains(&here));

        values.prefetch(&stream, .., here)?;
        assert_eq!(values.attributes(..)?.last_prefetch, Some(here));
        values.prefetch(&stream, .., MemoryLocation::Host)?;
        stream.synchronize()?;
        assert_eq!(values.attributes(..)?.last_prefetch, Some(MemoryLocation::Host));
        let out = values.prefetch(&stream, 5 << 20.., here).expect_err("no such elements");
        assert!(matches!(out, Error::OutOfBounds(_)), "{out:?}");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn g04_places_are_distinguished() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let stream = here.create_stream()?;
        let values = ManagedBuffer::<u8>::new(&here.context()?, 4 << 20)?;
        for device in [here, there] {
            let place = MemoryLocation::Device(device);
            values.advise(.., Advice::SetPreferredLocation(place))?;
            values.advise(.., Advice::SetAccessedBy(place))?;
            values.prefetch(&stream, .., place)?;
            let attributes = values.attributes(..)?;
            assert_eq!(attributes.preferred_location, Some(place));
            assert_eq!(attributes.last_prefetch, Some(place));
        }
        let users = values.attributes(..)?.accessed_by;
        assert_eq!(users.len(), 2, "{users:?}");
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn g01_prefetched_and_attached() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        // SAFETY: the memory is attached to all streams before a device uses it.
        let mut values =
            unsafe { ManagedBuffer::<u32>::new_attached_to_host(&device.context()?, 3000) }?;
        values.as_mut_slice()?.fill(1);
        // SAFETY: only that stream uses the memory until it is attached again.
        unsafe { values.attach(&one, ManagedAttach::Single) }?;
        one.fill(values.slice_mut(..1000)?, 2)?;
        // SAFETY: from here on, any device may use the memory.
        unsafe { values.attach(&one, ManagedAttach::Global) }?;
        two.fill(values.slice_mut(1000..2000)?, 3)?;
        values.prefetch(&two, .., MemoryLocation::Host)?;
        let expected: Vec<u32> = [2, 3, 1].into_iter().flat_map(|v| [v; 1000]).collect();
        assert_eq!(values.as_slice()?, expected);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s11_managed_memory_goes_through_the_ledger() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (one, two) = (here.create_stream()?, there.create_stream()?);
        let mut values = ManagedBuffer::<u32>::new(&here.context()?, 1 << 16)?;
        let (mut low, mut high) = values.as_view_mut().split_at_mut(1 << 15)?;
        for round in 0..10 {
            one.fill(&mut low, round)?;
            one.fill(&mut high, round + 100)?;
        }
        let mut copy = there.create_stream()?.alloc::<u32>(1 << 16)?;
        two.copy(&values, &mut copy)?;
        // The write waits for both devices' work.
        values.as_mut_slice()?.fill(0);
        let mut back = vec![0; 1 << 16];
        two.download(&copy, &mut back)?;
        assert!(back[..1 << 15].iter().all(|v| *v == 9), "the low half");
        assert!(back[1 << 15..].iter().all(|v| *v == 109), "the high half");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn g01_on_every_devices_streams() -> Result<()> {
        const LEN: usize = 5000;
        let concurrent = cuda_sys::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        let mut everywhere = true;
        for device in Device::all()? {
            everywhere &= device.attribute(concurrent)? != 0;
        }
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (home, stream) = (here.create_stream()?, there.create_stream()?);
        let mut values = ManagedBuffer::<u8>::new(&here.context()?, LEN)?;
        let mut own = stream.alloc_zeroed::<u8>(LEN)?;
        if !everywhere {
            let refused = stream.fill(&mut values, 1);
            assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
            report!("some device has no concurrent managed access: only the refusal was tried");
            return Ok(());
        }
        // First with no current context, then with the other device's.
        for current in [false, true] {
            let _guard = current.then(|| here.enter()).transpose()?;
            stream.fill(&mut values, 3)?;
            same(values.as_slice()?, &[3; LEN], "filled there");
            home.fill(values.slice_mut(..10)?, 4)?;
            stream.copy(&values, &mut own)?;
            let copied = contents(&stream, &own)?;
            same(&copied[..10], &[4; 10], "filled here");
            same(&copied[10..], &[3; LEN - 10], "copied there");
            let mut far = home.alloc::<u8>(LEN)?;
            stream.copy(&values, &mut far)?;
            same(&contents(&home, &far)?, &copied, "copied back between the devices");
            stream.fill(&mut own, 5)?;
            stream.copy(&own, &mut values)?;
            same(values.as_slice()?, &[5; LEN], "copied from there");
            let pinned = PinnedBuffer::from_slice(&here.context()?, &pattern(1, LEN))?;
            stream.upload(&pinned, &mut values)?;
            same(values.as_slice()?, &pattern(1, LEN), "uploaded there");
            stream.upload(&pattern(2, LEN), &mut values)?;
            let mut back = PinnedBuffer::<u8>::zeroed(&here.context()?, LEN)?;
            stream.download(&values, &mut back)?;
            same(back.as_slice()?, &pattern(2, LEN), "downloaded there");
            let shape = ArrayShape::D1 { width: LEN };
            let mut array = CudaArray::<u8>::new(&there.context()?, shape, ArrayFlags::default())?;
            stream.copy_to_array(&values, &mut array)?;
            stream.fill(&mut values, 0)?;
            stream.copy_from_array(&array, &mut values)?;
            same(values.as_slice()?, &pattern(2, LEN), "through an array there");
            let owned = stream.upload_owned(pattern(3, LEN), &mut values);
            owned?.wait()?;
            same(&Down::Borrowed.fetch(&stream, values.as_view())?, &pattern(3, LEN), "owned");
        }
        // Neither buffer belongs to the stream's device.
        let mut other = ManagedBuffer::<u8>::new(&there.context()?, LEN)?;
        home.copy(&values, &mut other)?;
        same(other.as_slice()?, &pattern(3, LEN), "between two");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn g04_nodes_of_the_host() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut values = ManagedBuffer::<u8>::new(&device.context()?, 4 << 20)?;
        values.as_mut_slice()?.fill(7);
        let too_old = Some(cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
        // Every machine has a node 0.
        for node in [MemoryLocation::HostNuma(0), MemoryLocation::HostNumaCurrent] {
            let preferred = Advice::SetPreferredLocation(node);
            match values.prefetch(&stream, .., node) {
                // If the header or the driver is older than 12.2, both calls return that error, without
                // effect.
                Err(error) if error.code() == too_old => {
                    let error = values.advise(.., preferred).expect_err("as old");
                    assert_eq!(error.code(), too_old);
                }
                prefetched => {
                    prefetched?;
                    values.advise(.., preferred)?;
                }
            }
            stream.synchronize()?;
            same(values.as_slice()?, &vec![7; 4 << 20], "moved about");
        }
        values.advise(.., Advice::UnsetPreferredLocation)?;
        let nowhere = MemoryLocation::HostNuma(u32::MAX);
        assert!(values.prefetch(&stream, .., nowhere).is_err());
        assert!(values.advise(.., Advice::SetPreferredLocation(nowhere)).is_err());
        Ok(())
    }
}
