//! Parts of a buffer that have several owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuda_core::{
    Device, DeviceBuffer, DeviceGroup, Error, PinnedBuffer, Result, SharedSlice,
    image::{ArrayFlags, ArrayShape, CudaArray, Texture, TextureDescriptor},
    kernel,
    managed::ManagedBuffer,
};
use support::{gpu_test, kernels, one_stream, stall};

use crate::pointers::Owner;

kernel! {
    fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
}

gpu_test! {
    needs 1;
    fn e_shared_parts_are_read_like_views() -> Result<()> {
        let (context, stream) = one_stream()?;
        let numbers: Vec<f32> = (0..100u8).map(f32::from).collect();
        let x = Arc::new(stream.upload_new(&numbers)?);
        let tail = SharedSlice::from(&x).slice(90..)?;
        assert_eq!((tail.len(), tail.byte_len(), tail.is_empty()), (10, 40, false));
        assert_eq!(tail.as_view().as_raw(), x.as_raw() + 360);
        assert!(matches!(tail.slice(..11), Err(Error::OutOfBounds(ref it)) if it.len == 10));
        // In copies.
        let expected = &numbers[90..];
        assert_eq!(stream.download_vec(&tail)?, expected);
        assert_eq!(stream.download_vec(&stream.copy_new(&tail)?)?, expected);
        let group = DeviceGroup::new([Device::get(0)?])?;
        let mut share = group.alloc_shares::<f32>(10)?;
        group.scatter(&tail, &mut share)?;
        assert_eq!(group.streams()[0].download_vec(&share[0])?, expected);
        // As arguments of kernels.
        let module = kernels::load(&context)?;
        let (typed, untyped) = (saxpy::load(&module)?, module.function("saxpy")?);
        let mut y = stream.alloc_zeroed::<f32>(10)?;
        // SAFETY: both have 10 elements.
        unsafe { typed.on(&stream, 1.0, &tail, &mut y, 10).elements(10).launch() }?;
        let mut launch = stream.kernel(&untyped).elements(10);
        launch = launch.arg(2.0f32).arg(&tail).arg(&mut y).arg(10u32);
        // SAFETY: as above.
        unsafe { launch.launch() }?;
        let thrice: Vec<f32> = expected.iter().map(|x| 3.0 * x).collect();
        assert_eq!(stream.download_vec(&y)?, thrice);
        // As other elements.
        let bytes = tail.cast::<[u8; 8]>()?.slice(1..2)?.cast::<f32>()?;
        assert_eq!(stream.download_vec(&bytes)?, [92.0, 93.0]);
        assert!(matches!(tail.slice(1..)?.cast::<[f32; 2]>(), Err(Error::Invalid(_))));
        // In pinned memory.
        let host = SharedSlice::from(PinnedBuffer::from_slice(&context, &numbers)?);
        stream.upload(&host.slice(10..20)?, &mut y)?;
        assert_eq!(stream.download_vec(&y)?, numbers[10..20]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e_shared_texels_are_copied_and_sampled() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let texels = SharedSlice::from(stream.upload_new(&[1.0f32, 2.0, 3.0, 4.0])?);
        let (shape, flags) = (ArrayShape::D1 { width: 3 }, ArrayFlags::default());
        let mut array = CudaArray::<f32>::new(stream.context(), shape, flags)?;
        stream.copy_to_array(&texels.slice(1..)?, &mut array)?;
        let mut back = stream.alloc::<f32>(3)?;
        stream.copy_from_array(&array, &mut back)?;
        assert_eq!(stream.download_vec(&back)?, [2.0, 3.0, 4.0]);
        let texture = Texture::new(&texels, &TextureDescriptor::default())?;
        texture.bind(&texels).map(drop)
    }
}

gpu_test! {
    needs 1;
    fn e_a_buffer_that_is_no_longer_shared_is_one_again() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let whole = SharedSlice::from(stream.upload_new(&[1u32, 2, 3, 4])?);
        let (other, part) = (whole.clone(), whole.slice(1..)?);
        let whole = whole.into_buffer().expect_err("there are three").value;
        drop(other);
        drop(whole);
        let part = part.into_buffer().expect_err("a part").value;
        assert_eq!(stream.download_vec(&part)?, [2, 3, 4]);
        let bytes = SharedSlice::from(stream.alloc::<u32>(4)?).cast::<[u8; 4]>()?;
        assert!(bytes.into_buffer().is_err(), "of other elements");
        let managed = ManagedBuffer::<u32>::zeroed(stream.context(), 4)?;
        assert!(SharedSlice::from(managed).into_buffer().is_err());

        let shared = Arc::new(PinnedBuffer::from_slice(stream.context(), &[7u32; 4])?);
        let whole = SharedSlice::from(&shared);
        let whole = whole.into_buffer().expect_err("the program has the other").value;
        drop(shared);
        let mut copy = stream.alloc::<u32>(4)?;
        stream.upload(&whole, &mut copy)?;
        let mut own = whole.into_buffer()?;
        own.as_mut_slice()?.fill(8); // waits for the copy
        assert_eq!(stream.download_vec(&copy)?, [7; 4]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_the_last_share_frees_behind_the_work() -> Result<()> {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<u8>(400)?;
        let dropped = Arc::new(AtomicBool::new(false));
        let (address, owner) = (memory.as_raw(), Owner { _memory: memory, dropped: dropped.clone() });
        let is_dropped = move || dropped.load(Ordering::Acquire);
        // SAFETY: the memory belongs to the owner, and no other code uses it.
        let mut buffer =
            unsafe { DeviceBuffer::<u32>::from_raw(address, 100, &context, owner) }?;
        stream.fill(&mut buffer, 7)?;
        let whole = SharedSlice::from(buffer);
        let part = whole.slice(50..)?;
        drop(whole);
        assert!(!is_dropped(), "a part keeps all of it");
        let mut copy = stream.alloc::<u32>(50)?;
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        stream.copy(&part, &mut copy)?;
        stalled.release_after(std::time::Duration::from_millis(10));
        // Drops the last part on another thread, which waits for the copy.
        thread::scope(|scope| scope.spawn(move || drop(part)).join()).expect("no panic");
        assert!(is_dropped());
        assert!(stream.query()?, "the copy came first");
        assert_eq!(stream.download_vec(&copy)?, [7; 50]);
        Ok(())
    }
}
