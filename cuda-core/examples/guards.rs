//! Guards next to other libraries on one thread: each guard restores the context that was current before.

mod shared;

use std::process::ExitCode;
use std::ptr;

use cuda_core::sys::{self, CUcontext, CUdevice, CUresult};
use cuda_core::{Context, ContextLocal};

const SUCCESS: CUresult = sys::CUDA_SUCCESS;

/// Stands in for another library: queries the driver as the runtime API does, and so PyTorch.
fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: the place for the context is valid for a write.
    let asked = unsafe { sys::cuCtxGetCurrent(&mut context) };
    assert_eq!(asked, SUCCESS);
    context
}

/// Returns the device that the other library would use.
fn current_device() -> CUdevice {
    let mut device = -1;
    // SAFETY: the place for the device is valid for a write.
    let asked = unsafe { sys::cuCtxGetDevice(&mut device) };
    assert_eq!(asked, SUCCESS);
    device
}

/// Switches contexts as the other library would.
fn switch_to(context: &Context) {
    // SAFETY: a primary context, which this crate keeps for the life of the process.
    let switched = unsafe { sys::cuCtxSetCurrent(context.as_raw()) };
    assert_eq!(switched, SUCCESS);
}

/// A handle like cuBLAS's: created once per thread and context, with that context current.
static HANDLE: ContextLocal<CUdevice> = ContextLocal::new(|_: &Context| Ok(current_device()));

fn example() -> shared::Result {
    let devices = shared::several()?;
    let (zero, one) = (devices[0], devices[1]);
    switch_to(&zero.context()?);
    let before = current();

    let guard = one.enter()?;
    assert_eq!(current_device(), 1);
    switch_to(&zero.context()?); // the other library switches inside of the scope
    guard.restore()?;
    assert_eq!(current(), before);
    println!("guard: device 1 inside, the same context as before after it");

    // Runs the scope as a closure; the guard also ends if the closure fails or panics.
    let device = one.with(|_| Ok(current_device()))?;
    assert_eq!((device, current()), (1, before));
    println!("closure: device {device} inside");

    // All other calls of this crate also leave the current context unchanged: they need no guard.
    let stream = one.create_stream()?;
    let mut buffer = stream.alloc_zeroed::<u8>(1000)?;
    stream.upload(&[7; 1000], &mut buffer)?;
    drop(buffer);
    assert_eq!(current(), before);
    println!("a stream, a buffer and a copy on device 1: the current context is unchanged");

    for device in [zero, one] {
        let made = HANDLE.with(&device.context()?, |made| cuda_core::Result::Ok(*made))?;
        println!("library handle made for device {made}, with it current");
    }
    assert_eq!(current(), before);
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
