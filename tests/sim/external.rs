//! External memory, for which the driver's own physical memory stands in.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use cuda_core::{
    Context, ContextFlags, Device, Error, Rejected, Result,
    interop::{
        ExternalMemory, ExternalMemoryKind, ExternalSemaphore, ExternalSemaphoreKind,
        ShareableHandle,
    },
    virtual_memory::{Granularity, PhysicalMemory, VirtualBuffer},
};
use cuda_sim::{Fault, Mode, Session};
use support::{kernels, simulator};

const KIND: ExternalMemoryKind = ExternalMemoryKind::Dedicated;

/// Creates the other interface's side: a buffer in the memory, and a descriptor of the memory.
fn others(context: &Context) -> Result<(VirtualBuffer<u8>, OwnedFd)> {
    let size = context.device().virtual_memory_granularity(Granularity::Minimum)?;
    let memory = PhysicalMemory::new(context, size, ShareableHandle::PosixFd)?;
    let fd = memory.export_fd()?;
    let mut buffer = VirtualBuffer::new(context, size)?;
    buffer.append(memory)?;
    Ok((buffer, fd))
}

fn import(context: &Context, fd: OwnedFd, size: usize) -> Result<ExternalMemory> {
    // SAFETY: the memory has as many bytes, and all uses of both buffers are enqueued on one stream.
    let imported = unsafe { ExternalMemory::import_fd(context, fd, size, KIND) };
    imported.map_err(Error::from)
}

fn first() -> Result<(Session, Context)> {
    Ok((simulator(), Device::get(0)?.context()?))
}

#[test]
fn m_memory_of_others_is_seen_by_both() -> Result<()> {
    let (session, context) = first()?;
    let stream = context.create_stream()?;
    let (mut theirs, fd) = others(&context)?;
    stream.fill(theirs.slice_mut(..)?, 1)?;
    stream.fill(theirs.slice_mut(256..264)?, 7)?;
    let memory = import(&context, fd, theirs.len())?;
    assert_eq!((memory.size(), memory.device()), (theirs.len(), context.device()));
    let mut imported = memory.into_buffer::<u32>(256, 4)?;
    let mut back = [0; 4];
    stream.download(&imported, &mut back)?;
    assert_eq!(back, [0x0707_0707, 0x0707_0707, 0x0101_0101, 0x0101_0101]);
    stream.fill(&mut imported, 0)?;
    let mut back = [9; 18];
    stream.download(theirs.slice(255..273)?, &mut back)?;
    assert_eq!((back[0], &back[1..17], back[17]), (1, &[0; 16][..], 1));
    drop((imported, theirs, stream));
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}

/// The memory is freed after the work that uses it, and its mapping before that.
#[test]
fn s01_memory_of_others_goes_when_its_work_is_done() -> Result<()> {
    let (session, context) = first()?;
    session.set_mode(Mode::Lazy);
    let stream = context.create_stream()?;
    let (theirs, fd) = others(&context)?;
    let memory = import(&context, fd, theirs.len())?;
    let mut imported = memory.into_buffer::<u8>(0, theirs.len())?;
    stream.fill(&mut imported, 3)?;
    let mark = session.mark();
    imported.close()?;
    let mut calls = session.names_since(mark);
    calls.retain(|name| name.starts_with("cuMem") || name.contains("External"));
    assert_eq!(calls, ["cuMemFree_v2", "cuDestroyExternalMemory"]);
    // Nothing was mapped from this memory.
    let (more, fd) = others(&context)?;
    import(&context, fd, more.len())?.close()?;
    let (last, fd) = others(&context)?;
    drop(import(&context, fd, last.len())?);
    drop((theirs, more, last, stream));
    session.assert_clean();
    Ok(())
}

#[test]
fn m_memory_of_others_that_is_none() -> Result<()> {
    let (session, context) = first()?;
    let other = OwnedFd::from(File::open("/dev/null").expect("a file"));
    let number = other.as_raw_fd();
    let mark = session.mark();
    // SAFETY: no memory can be used.
    let refused = unsafe { ExternalMemory::import_fd(&context, other, 0, KIND) };
    let Rejected { error, value: other } = refused.expect_err("no bytes");
    assert!(matches!(error, Error::Invalid(ref it) if it.reason.contains("given")), "{error:?}");
    assert!(session.names_since(mark).is_empty());
    // SAFETY: the import is refused.
    let refused = unsafe { ExternalMemory::import_fd(&context, other, 4096, KIND) };
    let Rejected { error, value: other } = refused.expect_err("no memory");
    assert!(matches!(error, Error::Driver { .. }), "{error:?}");
    // The test still owns the descriptor.
    assert_eq!(other.as_raw_fd(), number);
    File::from(other).metadata().expect("open");

    let (theirs, fd) = others(&context)?;
    let memory = import(&context, fd, theirs.len())?;
    let mark = session.mark();
    let Rejected { error, value: memory } = memory.into_buffer::<u8>(0, 0).expect_err("nothing");
    assert!(matches!(error, Error::Invalid(ref it) if it.reason.contains("given")), "{error:?}");
    let Rejected { error, value: memory } =
        memory.into_buffer::<u8>(8, theirs.len()).expect_err("too much");
    assert!(matches!(error, Error::OutOfBounds(_)), "{error:?}");
    let Rejected { error, value: memory } =
        memory.into_buffer::<u8>(usize::MAX, 1).expect_err("too far");
    assert!(matches!(error, Error::OutOfBounds(_)), "{error:?}");
    let Rejected { error, value: memory } =
        memory.into_buffer::<u32>(2, 1).expect_err("in between");
    assert!(
        matches!(error, Error::Invalid(ref it) if it.reason.contains("offset 2 is not aligned")),
        "{error:?}"
    );
    assert!(session.names_since(mark).is_empty());
    session.fail_nth(Some("cuExternalMemoryGetMappedBuffer"), 1, cuda_sys::CUDA_ERROR_UNKNOWN);
    let Rejected { error, value: memory } = memory.into_buffer::<u32>(0, 1).expect_err("failed");
    assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_UNKNOWN));
    // Mapped despite an error of earlier work: the mapping is freed again.
    let mapped = || {
        let call = "cuExternalMemoryGetMappedBuffer";
        Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function(call).takes_effect()
    };
    session.inject(mapped());
    let Rejected { value: memory, .. } = memory.into_buffer::<u32>(0, 1).expect_err("failed");
    memory.into_buffer::<u32>(0, 1)?;
    // Memory that stays mapped is not destroyed.
    let memory = import(&context, others(&context)?.1, theirs.len())?;
    session.inject(mapped());
    session.fail_nth(Some("cuMemFree_v2"), 1, cuda_sys::CUDA_ERROR_UNKNOWN);
    let failures = cuda_core::drops::failures();
    let Rejected { value: memory, .. } = memory.into_buffer::<u32>(0, 1).expect_err("failed");
    assert_eq!(memory.size(), 0, "given up");
    drop(memory);
    assert_eq!(cuda_core::drops::failures() - failures, 1);
    drop(theirs);
    assert_eq!(session.violations(), []);
    Ok(())
}

/// Imported by a raw call, as for handle types without a method in the library.
#[test]
fn m_memory_that_others_imported() -> Result<()> {
    let (session, context) = first()?;
    let (theirs, fd) = others(&context)?;
    let mut handle = cuda_sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: cuda_sys::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        size: theirs.len() as u64,
        ..Default::default()
    };
    handle.handle.fd = std::os::fd::IntoRawFd::into_raw_fd(fd);
    let mut raw = std::ptr::null_mut();
    let guard = context.enter()?;
    // SAFETY: the description is of such memory, and the handle is valid for a write.
    let code = unsafe { cuda_sys::cuImportExternalMemory(&mut raw, &handle) };
    assert_eq!(code, cuda_sys::CUDA_SUCCESS);
    guard.restore()?;
    // SAFETY: the memory was just imported, and has this size.
    let memory = unsafe { ExternalMemory::from_raw(raw, theirs.len(), &context) };
    assert_eq!((memory.as_raw(), memory.context()), (raw, &context));
    drop(memory.into_buffer::<u64>(8, 2)?);
    drop(theirs);
    session.assert_clean();
    Ok(())
}

/// Imports a semaphore; the simulated driver accepts any descriptor.
fn semaphore(context: &Context, kind: ExternalSemaphoreKind) -> Result<ExternalSemaphore> {
    let fd = OwnedFd::from(File::open("/dev/null").expect("a file"));
    // SAFETY: only work enqueued here uses it, as its kind requires.
    let imported = unsafe { ExternalSemaphore::import_fd(context, fd, kind) };
    imported.map_err(Error::from)
}

#[test]
fn m_streams_wait_for_semaphores_of_others() -> Result<()> {
    let (session, context) = first()?;
    let (one, two) = (context.create_stream()?, context.create_stream()?);
    let timeline = semaphore(&context, ExternalSemaphoreKind::Timeline)?;
    assert_eq!(timeline.context(), &context);
    one.signal_external(&timeline, 3)?;
    two.wait_external(&timeline, 5)?;
    one.synchronize()?;
    assert!(!two.query()?, "three is less than five");
    one.signal_external(&timeline, 6)?;
    two.synchronize()?;
    let binary = semaphore(&context, ExternalSemaphoreKind::Binary)?;
    for _ in 0..2 {
        two.wait_external(&binary, 0)?;
        assert!(!two.query()?, "it was not signalled");
        one.signal_external(&binary, 0)?;
        two.synchronize()?;
    }
    let elsewhere = Device::get(1)?.create_stream()?;
    for refused in [elsewhere.signal_external(&timeline, 7), elsewhere.wait_external(&timeline, 7)]
    {
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
    }
    drop((timeline, binary, one, two, elsewhere));
    session.assert_clean();
    Ok(())
}

#[test]
fn s42_semaphores_of_others_go_when_their_work_is_done() -> Result<()> {
    let (session, context) = first()?;
    session.set_mode(Mode::Lazy);
    let stream = context.create_stream()?;
    let closed = semaphore(&context, ExternalSemaphoreKind::Timeline)?;
    stream.signal_external(&closed, 1)?;
    closed.close()?;
    let dropped = semaphore(&context, ExternalSemaphoreKind::Binary)?;
    stream.signal_external(&dropped, 1)?;
    stream.wait_external(&dropped, 1)?;
    drop(dropped);
    drop(stream);
    session.assert_clean();
    Ok(())
}

#[test]
fn m_a_descriptor_that_is_refused_comes_back() -> Result<()> {
    let (session, context) = first()?;
    let code = cuda_sys::CUDA_ERROR_INVALID_HANDLE;
    session.fail_nth(Some("cuImportExternalSemaphore"), 1, code);
    let fd = OwnedFd::from(File::open("/dev/null").expect("a file"));
    // SAFETY: the import is refused.
    let refused =
        unsafe { ExternalSemaphore::import_fd(&context, fd, ExternalSemaphoreKind::Binary) };
    let Rejected { error, value: fd } = refused.expect_err("refused");
    assert_eq!(error.code(), Some(code));
    File::from(fd).metadata().expect("open");
    session.assert_clean();
    Ok(())
}

/// The driver has taken over the descriptor although it returned an error. The descriptor that is returned
/// with the error belongs to the caller all the same.
#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn s49_a_descriptor_comes_back_open() -> Result<()> {
    let (session, context) = first()?;
    let late = |function| {
        let fault = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED);
        session.inject(fault.function(function).takes_effect());
    };
    late("cuImportExternalMemory");
    let (theirs, fd) = others(&context)?;
    // SAFETY: the memory has as many bytes, and nothing uses it.
    let failed = unsafe { ExternalMemory::import_fd(&context, fd, theirs.len(), KIND) };
    let Rejected { value: fd, .. } = failed.expect_err("failed");
    let file = File::from(fd);
    file.metadata().expect("open");
    // What the driver had created was released, and the descriptor is still usable.
    import(&context, file.into(), theirs.len())?;

    late("cuImportExternalSemaphore");
    let fd = File::open("/dev/null").expect("a file").into();
    // SAFETY: the simulated driver accepts any descriptor as a semaphore.
    let failed =
        unsafe { ExternalSemaphore::import_fd(&context, fd, ExternalSemaphoreKind::Binary) };
    let Rejected { value: fd, .. } = failed.expect_err("failed");
    File::from(fd).metadata().expect("open");
    drop(theirs);
    session.assert_clean();
    Ok(())
}

/// Imported semaphores and memory belong to their context.
#[test]
fn m_what_others_have_is_refused_elsewhere() -> Result<()> {
    let (session, context) = first()?;
    let created = Context::new(context.device(), ContextFlags::default())?;
    let stream = created.create_stream()?;
    let fd = File::open("/dev/null").expect("a file").into();
    // SAFETY: the simulated driver accepts any descriptor as a semaphore.
    let semaphore =
        unsafe { ExternalSemaphore::import_fd(&context, fd, ExternalSemaphoreKind::Timeline) };
    let semaphore = semaphore?;
    let is_refused = |result: Result<()>| matches!(result, Err(Error::WrongContext(_)));
    assert!(is_refused(stream.signal_external(&semaphore, 1)));
    assert!(is_refused(stream.wait_external(&semaphore, 1)));
    let (theirs, fd) = others(&context)?;
    let memory = import(&context, fd, theirs.len())?;
    let mut imported = memory.into_buffer::<u32>(0, 4)?;
    let increment = kernels::get(&created, "increment")?;
    let mut launch = stream.kernel(&increment).block(1).arg(&mut imported);
    // SAFETY: the buffer has the one word that the kernel writes.
    assert!(is_refused(unsafe { launch.launch() }));
    drop((imported, theirs, semaphore, increment, stream, created));
    session.assert_clean();
    Ok(())
}
