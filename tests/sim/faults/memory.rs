//! Memory that is not stream-ordered: allocated, registered, opened, resized.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_core::{
    Access, DeviceBuffer, PinnedBuffer, PointerAttributes, Registered, interop::IpcMemoryHandle,
    is_pinned, pinned::RegisterFlags,
};

use cuda_sys::symbol as cu;
use support::{WatchedHost, one_stream, two_streams};

use super::harness::{Token, first, sweep};

#[test]
fn plain_memory() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut a = context.alloc::<u32>(16)?;
        let mut b = context.alloc::<u32>(16)?;
        s.fill(&mut a, 3)?;
        t.copy(&a, &mut b)?;
        drop(a);
        let mut back = [0; 16];
        t.download(&b, &mut back)?;
        assert_eq!(back, [3; 16]);
        Ok(b.close()?)
    });
}

#[test]
fn pitched_memory() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut rows = context.alloc_pitched::<u32>(3, 2)?;
        stream.fill(rows.row_mut(1)?, 4)?;
        let mut back = [0; 3];
        stream.download(rows.row(1)?, &mut back)?;
        assert_eq!(back, [4; 3]);
        rows.synchronize()?;
        drop(context.alloc_pitched::<u8>(1, 1)?);
        Ok(rows.close()?)
    });
}

#[test]
fn write_combined_memory() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut host = PinnedBuffer::<u32>::write_combined(&context, 16)?;
        assert_ne!(host.device_ptr()?, 0);
        let mut buffer = stream.alloc::<u32>(16)?;
        stream.fill(&mut buffer, 3)?;
        stream.download(&buffer, &mut host)?;
        assert_eq!(host.as_slice()?, [3; 16]);
        Ok(())
    });
}

#[test]
fn registered_memory() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let flags = RegisterFlags::PORTABLE;
        let source = Registered::new(&context, vec![5_u32; 16], flags)?;
        let mut target = Registered::new(&context, vec![0_u32; 16], flags)?;
        let mut buffer = stream.alloc::<u32>(16)?;
        stream.upload(&source, &mut buffer)?;
        stream.download(&buffer, &mut target)?;
        assert_eq!(target.as_mut_slice()?, [5; 16]);
        stream.download(&buffer, &mut target)?;
        drop(source);
        let shared: Arc<[u32]> = vec![6; 16].into();
        let shared = Registered::read_only(&context, shared, flags)?;
        stream.upload(&shared, &mut buffer)?;
        shared.close()?;
        assert_eq!(target.into_inner()?, [5; 16]);
        Ok(())
    });
}

/// The owner of registered memory is dropped once, or leaked if its work cannot be proven complete.
#[test]
fn owners_of_registered_memory() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    sweep(|| {
        let (context, stream) = one_stream()?;
        let before = DROPPED.load(Ordering::Relaxed);
        let host =
            || WatchedHost::new(vec![0_u8; 64], |_| _ = DROPPED.fetch_add(1, Ordering::Relaxed));
        let ended = (|| {
            let mut one = Registered::new(&context, host(), RegisterFlags::NONE)?;
            let buffer = stream.alloc_zeroed::<u8>(64)?;
            stream.download(&buffer, &mut one)?;
            drop(one);
            Ok(())
        })();
        let dropped = DROPPED.load(Ordering::Relaxed) - before;
        assert!(dropped <= 1, "dropped {dropped} times");
        assert!(ended.is_err() || dropped == 1 || cuda_core::drops::failures() > 0);
        ended
    });
}

#[test]
fn foreign_memory() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<u32>(16)?;
        let address = memory.as_raw();
        // SAFETY: the memory is its own owner, and no other code uses it.
        let mut buffer = unsafe { DeviceBuffer::<u32>::from_raw(address, 16, &context, memory) }?;
        stream.fill(&mut buffer, 8)?;
        let mut back = [0; 16];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [8; 16]);
        stream.fill(&mut buffer, 9)?;
        Ok(())
    });
}

#[test]
fn memory_of_another_process() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        context.alloc::<u8>(16)?.ipc_handle()?;
        let handle = IpcMemoryHandle::from_bytes(cuda_sim::foreign_memory(64));
        // SAFETY: no other process exists that could use the memory.
        let mut buffer = unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, 64) }?;
        stream.fill(&mut buffer, 1)?;
        buffer.close()?;
        // SAFETY: no other process exists that could use the memory.
        let mut buffer = unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, 64) }?;
        stream.fill(&mut buffer, 1)?;
        Ok(())
    });
}

#[test]
fn resized() {
    sweep(|| {
        let (_, context) = first()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let mut buffer = s.alloc::<u32>(8)?;
        s.fill(&mut buffer, 2)?;
        let before = (buffer.len(), buffer.capacity(), buffer.as_raw());
        let grown = buffer.resize(&t, 16);
        if grown.is_err() {
            let after = (buffer.len(), buffer.capacity(), buffer.as_raw());
            assert_eq!(after, before, "what it was");
        }
        grown?;
        buffer.truncate(4);
        buffer.shrink_to_fit(&s)?;
        let mut back = [0; 4];
        t.download(&buffer, &mut back)?;
        assert_eq!(back, [2; 4]);
        Ok(())
    });
}

#[test]
fn looked_at() {
    sweep(|| {
        let (_, context) = first()?;
        let host = PinnedBuffer::<u8>::zeroed(&context, 8)?;
        assert!(is_pinned(host.as_slice()?.as_ptr())?);
        assert_eq!(PointerAttributes::of_host(&0)?.memory_type, None);
        Ok(())
    });
}

#[test]
fn dropped_in_a_host_function() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut plain = context.alloc::<u8>(8)?;
        s.fill(&mut plain, 1)?;
        let host = vec![0_u8; 64];
        let mut host = Registered::new(&context, host, RegisterFlags::NONE)?;
        s.download(&plain, host.as_view_mut().slice_mut(..8)?)?;
        let pool = cuda_core::MemoryPool::builder(context.device()).build()?;
        let token = Token::new();
        t.launch_host_func(move || drop((plain, host, pool, token)))?;
        t.synchronize()
    });
}

#[test]
fn noted_by_hand() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut host = PinnedBuffer::<u32>::write_combined(&context, 16)?;
        host.as_mut_slice()?.fill(0);
        // SAFETY: only the fill uses the memory between the two calls.
        unsafe { host.note_use(&stream, Access::Write) }?;
        let address = host.device_ptr()?;
        // SAFETY: the memory is kept until the fill, which `host` has noted, is complete.
        let filled = unsafe { cu::cuMemsetD32Async(address, 7, 16, stream.as_raw()) };
        // SAFETY: only the fill has used the memory since the first call.
        unsafe { host.note_use(&stream, Access::Write) }?;
        if filled == cuda_sys::CUDA_SUCCESS {
            assert_eq!(host.as_slice()?, [7; 16]);
        }
        Ok(())
    });
}
