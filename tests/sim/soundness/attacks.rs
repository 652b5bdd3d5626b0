//! Attacks that a second review found.

use std::sync::Arc;

use cuda_core::{
    Error, Registered, Rejected,
    image::{ArrayFlags, ArrayShape, CudaArray, MipmappedArray},
    is_pinned,
    jit::Linker,
    pinned::RegisterFlags,
};
use cuda_sim::{Fault, LeakKind};
use cuda_sys::{CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS};
use support::kernels;

use super::{clean, device, leaking, primary};

/// Two owners of the same elements: one registered them, so the other's copy is an asynchronous transfer. The
/// registration must not end during that copy, although it did not record the copy.
#[test]
fn s23_unregistered_under_another_owner_s_copy() {
    clean(|session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let shared: Arc<[u32]> = vec![7; 64].into();
        let registered = Registered::new(&primary(), shared.clone(), RegisterFlags::PORTABLE)?;
        let flight = stream.upload_owned(shared, &mut buffer)?;
        assert!(session.pending_ops() > 0, "the copy is a transfer");
        drop(registered);
        assert!(flight.is_done()?, "unregistering waits for it");
        flight.wait()?;
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// Flags that create an array without memory, or of a kind that contradicts its shape.
#[test]
fn s02_arrays_without_memory() {
    clean(|_| {
        let shape = ArrayShape::D2 { width: 8, height: 8 };
        for bits in [0x80, 0x40, 1, 4] {
            let flags = ArrayFlags::from_bits(bits);
            let array = CudaArray::<f32>::new(&primary(), shape, flags);
            assert!(matches!(array, Err(Error::Invalid(_))), "{bits:#x}");
            let levels = MipmappedArray::<f32>::new(&primary(), shape, 2, flags);
            assert!(matches!(levels, Err(Error::Invalid(_))), "{bits:#x}");
        }
        Ok(())
    });
}

/// The registering call returns an error of earlier work. The memory is returned to the caller, and later
/// memory at its address must not count as pinned.
#[test]
fn s06_memory_that_comes_back_is_not_registered() {
    clean(|session| {
        let late = Fault::new(CUDA_ERROR_LAUNCH_FAILED).function("cuMemHostRegister_v2");
        session.inject(late.takes_effect());
        let host = vec![1_u8; 4096];
        let Rejected { value: host, .. } =
            Registered::new(&primary(), host, RegisterFlags::PORTABLE)
                .expect_err("returned by this call");
        assert!(!is_pinned(host.as_ptr())?);
        Ok(())
    });
}

/// Code was loaded by a call that returned an error of earlier work: the driver writes to the logs that it
/// received until the code is unloaded.
#[test]
fn s02_logs_of_code_that_was_loaded_despite_an_error() {
    const LOG: usize = 16 << 10;
    leaking(|session| {
        let context = primary();
        for call in ["cuModuleLoadDataEx", "cuLinkCreate_v2"] {
            session.inject(Fault::new(CUDA_ERROR_LAUNCH_FAILED).function(call).takes_effect());
            let loaded = match call {
                "cuLinkCreate_v2" => Linker::new(&context).map(drop),
                _ => kernels::load(&context).map(drop),
            };
            assert!(loaded.is_err(), "{call}");
            // These get the logs' addresses if the logs have been freed.
            let others = [const { 0xAA_u8 }; 8].map(|byte| vec![byte; LOG]);
            let _guard = context.enter()?;
            for leak in session.leaks() {
                let handle = std::ptr::without_provenance_mut::<()>(leak.handle as usize);
                let code = match leak.kind {
                    // SAFETY: the call above made the object, and only this call destroys it.
                    LeakKind::Linker => unsafe { cuda_sys::cuLinkDestroy(handle.cast()) },
                    // SAFETY: as above.
                    _ => unsafe { cuda_sys::cuModuleUnload(handle.cast()) },
                };
                assert_eq!(code, CUDA_SUCCESS, "{call}");
            }
            assert!(others.iter().flatten().all(|byte| *byte == 0xAA), "{call}: written to");
        }
        Ok(())
    });
}
