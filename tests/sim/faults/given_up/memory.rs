//! Memory of every kind.

use cuda_core::{
    Allocator, DeviceBuffer, Error, PinnedBuffer, Pod, Registered, Resource,
    interop::{IpcMemoryHandle, ShareableHandle},
    managed::ManagedBuffer,
    pinned::RegisterFlags,
    virtual_memory::{PhysicalMemory, VirtualBuffer},
};

use super::{Case, first, refused, stream};

const DEVICE: &[Resource] = &[Resource::DeviceMemory];
const PINNED: &[Resource] = &[Resource::PinnedMemory];

/// Asserts that the buffer has no memory left.
fn is_empty<T: Pod>(buffer: &mut DeviceBuffer<T>) {
    assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
    let stream = stream();
    stream.fill_bytes(&mut *buffer, 1).expect("none to fill");
    let bytes = buffer.as_view().cast::<u8>().expect("none");
    let short = stream.download(bytes, &mut [0; 4]);
    assert!(matches!(short, Err(Error::LengthMismatch(_))), "{short:?}");
    assert!(buffer.slice(..1).is_err());
}

#[test]
fn pinned_memory() {
    Case {
        call: "cuMemFreeHost",
        make: || PinnedBuffer::<u32>::write_combined(&first()?.1, 16),
        close: PinnedBuffer::close,
        lost: PINNED,
        used: |host| {
            refused(host.as_slice().map(<[u32]>::len));
            refused(host.try_as_slice().map(|_| ()));
            refused(host.as_mut_slice().map(|host| host.fill(1)));
            assert_eq!((host.len(), host.device_ptr().ok()), (0, Some(0)));
            let stream = stream();
            let mut buffer = stream.alloc::<u32>(16).expect("memory");
            stream.upload(&*host, &mut buffer).expect_err("too short");
        },
    }
    .run();
}

#[test]
fn registered_memory() {
    Case {
        call: "cuMemHostUnregister",
        make: || {
            let host = vec![5_u32; 16];
            let registered = Registered::new(&first()?.1, host, RegisterFlags::PORTABLE);
            registered.map_err(Error::from)
        },
        // The owner may stay pinned permanently, so it must not be returned.
        close: |host| host.into_inner().map(drop),
        lost: PINNED,
        used: |host| {
            refused(host.as_slice().map(<[u32]>::len));
            refused(host.as_mut_slice().map(|host| host.fill(1)));
            assert_eq!(host.len(), 0);
        },
    }
    .run();
}

#[test]
fn device_memory() {
    let case = Case {
        call: "cuMemFree_v2",
        make: || first()?.1.alloc::<u32>(16),
        close: DeviceBuffer::close,
        lost: DEVICE,
        used: is_empty,
    };
    case.run();
    let make = || stream().alloc_with::<u32>(&Allocator::plain(), 16);
    Case { make, ..case }.run();
    Case {
        call: "cuMemFreeAsync",
        make: || stream().alloc_with::<u32>(&Allocator::driver_pool(), 16),
        ..case
    }
    .run();
}

#[test]
fn memory_of_another_process() {
    Case {
        call: "cuIpcCloseMemHandle",
        make: || {
            let handle = IpcMemoryHandle::from_bytes(cuda_sim::foreign_memory(64));
            // SAFETY: no other process exists that could use the memory.
            unsafe { DeviceBuffer::<u8>::open_ipc(&first()?.1, handle, 64) }
        },
        close: DeviceBuffer::close,
        lost: DEVICE,
        used: is_empty,
    }
    .run();
}

#[test]
fn managed_memory() {
    Case {
        call: "cuMemFree_v2",
        make: || ManagedBuffer::<u32>::new(&first()?.1, 16),
        close: ManagedBuffer::close,
        lost: DEVICE,
        used: |values| {
            refused(values.as_slice().map(<[u32]>::len));
            refused(values.as_mut_slice().map(|values| values.fill(1)));
            assert_eq!(values.len(), 0);
        },
    }
    .run();
}

#[test]
fn memory_in_rows() {
    Case {
        call: "cuMemFree_v2",
        make: || first()?.1.alloc_pitched::<u32>(16, 4),
        close: cuda_core::PitchedBuffer::close,
        lost: DEVICE,
        used: |rows| {
            assert!(rows.row(0).is_err() && rows.is_empty());
            rows.pitched().expect("no rows");
        },
    }
    .run();
}

/// The addresses are given up with the memory: the buffer does not know what is still mapped there.
#[test]
fn virtual_memory() {
    let mut case = Case {
        call: "cuMemUnmap",
        make: || {
            let mut list = VirtualBuffer::<u32>::new(&first()?.1, 1 << 20)?;
            list.grow_to(100)?;
            Ok(list)
        },
        close: VirtualBuffer::close,
        lost: DEVICE,
        used: |list| {
            assert_eq!((list.len(), list.capacity(), list.max_len()), (0, 0, 0));
            list.grow_to(1).expect_err("no addresses");
            let memory = PhysicalMemory::new(list.context(), 1, ShareableHandle::None);
            list.append(memory.expect("memory")).expect_err("no addresses");
            list.shrink_to(0).expect("nothing to do");
        },
    };
    case.run();
    case.call = "cuMemAddressFree";
    case.run();
}

#[test]
fn physical_memory() {
    Case {
        call: "cuMemRelease",
        make: || PhysicalMemory::new(&first()?.1, 1, ShareableHandle::None),
        close: PhysicalMemory::close,
        lost: &[Resource::PhysicalMemory],
        used: |memory| assert_eq!((memory.as_raw(), memory.size()), (0, 0)),
    }
    .run();
}

/// The imported memory that a buffer was mapped from is given up with the buffer.
#[test]
#[cfg(all(unix, not(miri)))]
fn memory_of_another_interface() {
    use cuda_core::interop::{
        ExternalMemory, ExternalMemoryKind, ExternalSemaphore, ExternalSemaphoreKind,
    };

    fn import() -> cuda_core::Result<ExternalMemory> {
        let (_, context) = first()?;
        let memory = PhysicalMemory::new(&context, 1, ShareableHandle::PosixFd)?;
        let (fd, kind) = (memory.export_fd()?, ExternalMemoryKind::Allocation);
        // SAFETY: the descriptor is of this size, and no other code uses the memory.
        let imported = unsafe { ExternalMemory::import_fd(&context, fd, memory.size(), kind) };
        imported.map_err(Error::from)
    }
    Case {
        call: "cuDestroyExternalMemory",
        make: import,
        close: ExternalMemory::close,
        lost: &[Resource::ExternalMemory],
        used: |memory| assert!((memory.as_raw().is_null(), memory.size()) == (true, 0)),
    }
    .run();
    Case {
        call: "cuMemFree_v2",
        make: || {
            let mapped = import()?.into_buffer::<u32>(0, 16);
            mapped.map_err(Error::from)
        },
        close: DeviceBuffer::close,
        lost: &[Resource::DeviceMemory, Resource::ExternalMemory],
        used: is_empty,
    }
    .run();
    Case {
        call: "cuDestroyExternalSemaphore",
        make: || {
            let fd = std::fs::File::open("/dev/null").expect("a file").into();
            let kind = ExternalSemaphoreKind::Timeline;
            // SAFETY: the simulated driver accepts any descriptor as a semaphore.
            let imported = unsafe { ExternalSemaphore::import_fd(&first()?.1, fd, kind) };
            imported.map_err(Error::from)
        },
        close: ExternalSemaphore::close,
        lost: &[Resource::ExternalSemaphore],
        used: |semaphore| {
            assert!(semaphore.as_raw().is_null());
            refused(stream().signal_external(semaphore, 1));
            refused(stream().wait_external(semaphore, 1));
        },
    }
    .run();
}
