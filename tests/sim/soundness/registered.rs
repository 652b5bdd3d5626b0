//! S10, S42: concurrent registrations of memory on the same pages.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use cuda_core::{
    Registered, is_pinned,
    pinned::{RegisterFlags, StableHost},
};
use cuda_sim::Fault;

use super::memory::registered;
use super::{clean, device, primary};

/// Returns two vectors on the same page of 64 KiB, the unit in which the library counts.
fn neighbours() -> (Vec<u8>, Vec<u8>) {
    let page = |vector: &Vec<u8>| vector.as_ptr().addr() >> 16;
    let mut others = Vec::new();
    loop {
        let (a, b) = (vec![1; 13], vec![3; 13]);
        if page(&a) == page(&b) {
            return (a, b);
        }
        others.push((a, b));
    }
}

/// The registration that a failed call left behind is ended, even while another thread registers neighbouring
/// memory.
#[test]
fn s10_a_vector_comes_back_unregistered_beside_a_neighbour() {
    clean(|session| {
        let (vector, neighbour) = neighbours();
        let fault = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemHostRegister_v2");
        let held = session.hold("cuMemHostRegister_v2");
        let (back, neighbour) = thread::scope(|scope| {
            let failing = scope.spawn(move || {
                session.inject(fault.takes_effect().on_this_thread());
                let refused = Registered::new(&primary(), vector, RegisterFlags::PORTABLE);
                refused.err().map(|rejected| rejected.value)
            });
            held.await_call();
            let neighbour = registered(neighbour);
            drop(held);
            (failing.join().expect("no panic").expect("a fault was injected"), neighbour)
        });
        assert!(!is_pinned(back.as_ptr())?);
        assert!(is_pinned(neighbour?.as_slice()?.as_ptr())?);
        Ok(())
    });
}

/// Another owner of the same elements is refused while a call is in progress: the registration that a failed
/// call left behind is its own, and is ended.
#[test]
fn s10_one_owner_of_the_same_elements_at_a_time() {
    clean(|session| {
        let shared: Arc<[u8]> = vec![7; 64].into();
        let late = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemHostRegister_v2");
        let (other, held) = (shared.clone(), session.hold("cuMemHostRegister_v2"));
        let (first, second) = thread::scope(|scope| {
            let failing = scope.spawn(move || {
                session.inject(late.takes_effect().on_this_thread());
                registered(other).map(drop)
            });
            held.await_call();
            let second = registered(shared.clone()).map(drop);
            drop(held);
            (failing.join().expect("no panic"), second)
        });
        let taken = cuda_sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        assert_eq!(second.unwrap_err().code(), Some(taken));
        assert_eq!(first.unwrap_err().code(), Some(cuda_sys::CUDA_ERROR_LAUNCH_FAILED));
        assert!(!is_pinned(shared.as_ptr())?);
        registered(shared).map(drop)
    });
}

/// A failed call left nothing behind. Another owner has registered the elements after the first, and the
/// driver's answer about the first element may include that registration.
#[test]
fn s10_the_registration_of_a_neighbour_is_not_ones_own() {
    /// All but the first element.
    struct Tail(Arc<[u8]>);

    // SAFETY: no code writes the elements while the `Arc` lives.
    unsafe impl StableHost for Tail {
        type Element = u8;

        fn elements(&mut self) -> NonNull<[u8]> {
            NonNull::from(&self.0[1..])
        }
    }

    clean(|session| {
        let shared: Arc<[u8]> = vec![7; 64].into();
        let fail = |code, name| Fault::new(code).function(name).on_this_thread();
        let (tail, held) = (Tail(shared.clone()), session.hold("cuMemHostRegister_v2"));
        let host = thread::scope(|scope| {
            let failing = scope.spawn(move || {
                let not_registered = cuda_sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
                let late = fail(cuda_sys::CUDA_ERROR_LAUNCH_FAILED, "cuMemHostRegister_v2");
                session.inject(late.takes_effect()); // which is none, beside the other
                session.inject(fail(not_registered, "cuMemHostUnregister"));
                registered(tail).map(drop)
            });
            held.await_call();
            let host = registered(shared);
            drop(held);
            let failed = failing.join().expect("no panic");
            assert_eq!(session.calls("cuMemHostUnregister"), 1, "tried");
            assert_eq!(failed.unwrap_err().code(), Some(cuda_sys::CUDA_ERROR_LAUNCH_FAILED));
            host
        })?;
        assert!(is_pinned(host.as_slice()?.as_ptr())?);
        Ok(())
    });
}

/// The driver's call waits for all work, some of which waits for what the other thread does after its copies
/// of the same page.
#[test]
fn s42_copies_do_not_wait_for_the_call_that_unregisters_their_page() {
    clean(|session| {
        let (vector, neighbour) = neighbours();
        let stream = device().create_stream()?;
        let mut x = stream.alloc::<u8>(13)?;
        let host = registered(vector)?;
        let held = session.hold("cuMemHostUnregister");
        thread::scope(|scope| {
            scope.spawn(move || drop(host));
            held.await_call();
            let address = neighbour.as_ptr();
            let neighbour = stream.upload_owned(neighbour, &mut x)?.wait()?;
            let neighbour = stream.download_owned(&x, neighbour)?.wait()?;
            assert_eq!((&neighbour[..], neighbour.as_ptr()), (&[3; 13][..], address));
            drop(held);
            Ok(())
        })
    });
}
