//! F: registration of existing host memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use cuda_core::{
    Device, Error, PinnedBuffer, PinnedSlice, Registered, Rejected, Result, is_pinned,
    pinned::{ReadOnly, RegisterFlags, StableHost, StableHostMut},
};
use support::{block_on, gpu_test, kernels, pattern};

use crate::forms::same;

/// Memory that shares no page with other memory.
struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    fn new(bytes: &[u8]) -> Self {
        let layout = Self::layout(bytes.len());
        // SAFETY: the size is at least one page.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        // SAFETY: as many bytes were just allocated.
        unsafe { start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let len = bytes.len();
        Self { start, len }
    }

    fn layout(len: usize) -> Layout {
        let size = len.next_multiple_of(4096).max(4096);
        Layout::from_size_align(size, 4096).expect("a layout")
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

// SAFETY: the value owns the memory that it points to.
unsafe impl Send for Pages {}
// SAFETY: nothing writes the memory through a shared reference.
unsafe impl Sync for Pages {}

// SAFETY: the elements are initialised and on the heap, and no other code accesses them.
unsafe impl StableHost for Pages {
    type Element = u8;

    fn elements(&mut self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.len)
    }
}

// SAFETY: only this value has the pages, which are mapped for reading and writing until it is
// dropped.
unsafe impl StableHostMut for Pages {}

gpu_test! {
    needs 1;
    fn f02_is_pinned_while_registered() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let values = vec![1_u32; 10_000];
        let (start, middle) = (values.as_ptr(), &raw const values[5000]);
        assert!(!is_pinned(start)?);
        let host = Registered::new(&context, values, RegisterFlags::PORTABLE)?;
        assert!(is_pinned(start)? && is_pinned(middle)?);
        let values = host.into_inner()?;
        assert_eq!(values.as_ptr(), start, "the same memory");
        assert!(!is_pinned(start)?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s23_registered_memory_is_owned() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let context = device.context()?;
        let bytes = pattern(23, 100_003);
        let source = Pages::new(&bytes);
        let source = Registered::new(&context, source, RegisterFlags::PORTABLE)?;
        let target = vec![0_u8; 100_003].into_boxed_slice();
        let mut target = Registered::new(&context, target, RegisterFlags::PORTABLE)?;
        let mut buffer = stream.alloc::<u8>(100_003)?;
        stream.upload(&source, &mut buffer)?;
        stream.download(&buffer, &mut target)?;
        // Moving the owners does not move the elements.
        let (source, mut target) = (Box::new(source), Box::new(target));
        same(target.as_slice()?, &bytes, "down again");
        target.as_mut_slice()?[0] ^= 1;
        stream.upload(target.as_view(), &mut buffer)?;
        drop(source);
        let back = target.into_inner()?;
        assert_eq!(back[0], bytes[0] ^ 1);
        same(&back[1..], &bytes[1..], "the owner came back");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s23_registered_parts() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let host = vec![0_u32; 4096];
        let mut host = Registered::new(&device.context()?, host, RegisterFlags::PORTABLE)?;
        let mut buffer = stream.alloc::<u32>(2048)?;
        stream.fill(&mut buffer, 6)?;
        stream.download(&buffer, host.as_view_mut().slice_mut(2048..)?)?;
        assert_eq!(host.slice(2047..2049)?.as_slice()?, [0, 6]);
        stream.fill(&mut buffer, 7)?;
        stream.download(buffer.slice(..10)?, host.slice_mut(..10)?)?;
        let (low, high) = host.as_view_mut().split_at_mut(2048)?;
        stream.download(&buffer, high)?;
        assert_eq!(low.len(), 2048);
        block_on(host.ready())?;
        assert_eq!(host.try_as_slice()?.map(|all| (all[9], all[10], all[4095])), Some((7, 0, 7)));
        block_on(host.ready_mut())?;
        assert_eq!((host.byte_len(), host.context()), (16_384, &device.context()?));
        let view: PinnedSlice<'_, u32> = (&host).into();
        assert_eq!(view.len(), 4096);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s23_shared_memory_is_read_only() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let shared: Arc<[u8]> = pattern(24, 70_001).into();
        let host = shared.clone();
        let host = Registered::new(&device.context()?, host, RegisterFlags::PORTABLE)?;
        let mut buffer = stream.alloc::<u8>(70_001)?;
        stream.upload(&host, &mut buffer)?;
        same(host.as_slice()?, &shared, "read by both");
        same(&crate::forms::contents(&stream, &buffer)?, &shared, "and by the device");
        drop(shared);
        Ok(host.close()?)
    }
}

gpu_test! {
    needs 1;
    fn f01_registered_zero() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let empty = Registered::new(&context, Vec::<u64>::new(), RegisterFlags::PORTABLE)?;
        assert!(empty.is_empty());
        assert_eq!(empty.as_slice()?, [0u64; 0]);
        assert_eq!(empty.device_ptr()?, 0);
        assert_eq!(empty.into_inner()?, [0u64; 0]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f02_registered_flags() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let refused = Registered::new(&context, vec![7_u8; 100], RegisterFlags::from_bits(4));
        let Rejected { error, value: values } = refused.expect_err("memory-mapped devices are not on the heap");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert_eq!(values, [7; 100], "the owner comes back");
        let refused = Registered::new(&context, values, RegisterFlags::READ_ONLY);
        let Rejected { error, value: values } = refused.expect_err("it could be written");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        match Registered::read_only(&context, values, RegisterFlags::PORTABLE) {
            Ok(host) => {
                let stream = device.create_stream()?;
                let mut buffer = stream.alloc::<u8>(100)?;
                stream.upload(&host, &mut buffer)?;
                let ReadOnly(values) = host.into_inner()?;
                assert_eq!(values, [7; 100]);
            }
            Err(Rejected { error: Error::Unsupported { .. }, value: values }) => assert_eq!(values, [7; 100]),
            Err(Rejected { error, .. }) => return Err(error),
        }
        let flags = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
        let host = Registered::new(&context, vec![7_u8; 4096], flags)?;
        assert_ne!(host.device_ptr()?, 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f02_registered_memory_is_given_like_pinned_memory() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let context = stream.context();
        let add_one = kernels::get(context, "add_one")?;
        let flags = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
        let mut host = Registered::new(context, Pages::new(&[0; 400]), flags)?;
        let mut counts = Registered::new(context, vec![7_u32; 100], flags)?;
        let launch = stream.kernel(&add_one).elements(100).uses(&host);
        // SAFETY: the kernel writes 100 elements.
        unsafe { launch.arg(&mut counts).arg(100_u32).launch() }?;
        assert_eq!(counts.as_slice()?, [8; 100], "the kernel was waited for");
        let registered = stream.upload_new(&counts)?;
        let pinned = stream.upload_new(&PinnedBuffer::from_slice(context, &[9_u32; 100])?)?;
        assert_eq!(stream.download_vec(&registered)?, [8; 100]);
        assert_eq!(stream.download_vec(&pinned)?, [9; 100]);
        assert_eq!(host.as_mut_slice()?, [0; 400]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s42_unregistering_waits_for_the_copy() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let host = vec![0_u8; 1 << 16];
        let mut host = Registered::new(&device.context()?, host, RegisterFlags::PORTABLE)?;
        let mut buffer = stream.alloc::<u8>(1 << 16)?;
        stream.fill(&mut buffer, 1)?;
        stream.download(&buffer, &mut host)?;
        stream.synchronize()?;

        stream.fill(&mut buffer, 9)?;
        let stall = support::stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        assert!(host.try_as_slice()?.is_none(), "returned behind the stall");
        stall.release();
        let back = host.into_inner()?;
        assert!(back.iter().all(|byte| *byte == 9), "the copy was waited for");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f02_registered_memory_in_parts() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let (context, pages) = (stream.context(), Pages::new(&[0; 10]));
        let mut registered = Registered::new(context, pages, RegisterFlags::PORTABLE)?;
        let values = stream.upload_new(&[1_u8, 2, 3, 4])?;
        for (number, part) in registered.chunks_mut(4)?.enumerate() {
            let len = part.len();
            stream.download(values.slice(..len)?, part)?;
            assert_eq!(len, [4, 4, 2][number]);
        }
        assert_eq!(registered.as_slice()?, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]);
        let (mut head, tail) = registered.split_at_mut(5)?;
        stream.download(values.slice(..tail.len() - 1)?, head.slice_mut(..4)?)?;
        assert_eq!((head.as_mut_slice()?.len(), tail.len()), (5, 5));
        assert_eq!(registered.chunks(5)?.len(), 2);
        let refused = registered.chunks(0).err().expect("no elements").to_string();
        assert_eq!(refused, "chunks: a chunk has at least one element");
        Ok(())
    }
}
