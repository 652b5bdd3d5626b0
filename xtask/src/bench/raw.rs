//! Whole transfers by raw driver calls.

use cuda_core::Stream;
use cuda_sys::{
    CUDA_SUCCESS, CUdeviceptr, CUresult, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2,
    cuStreamSynchronize,
};

/// The direction of a transfer between the host and a device.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Up, Self::Down];
}

/// Copies `bytes` on the stream, and waits for it.
///
/// # Safety
/// Both sides have `bytes` bytes, the host's readable or writable as the direction demands, and no
/// other code uses them until this returns.
pub(super) unsafe fn transfer(
    stream: &Stream,
    direction: Direction,
    device: CUdeviceptr,
    host: *mut u8,
    bytes: usize,
) -> CUresult {
    let raw = stream.as_raw();
    let host = host.cast();
    let copied = match direction {
        // SAFETY: the caller vouches for both sides until the copy is done, which is awaited below; the
        // stream is borrowed, so it is live.
        Direction::Up => unsafe { cuMemcpyHtoDAsync_v2(device, host, bytes, raw) },
        // SAFETY: the caller vouches for both sides, the host's for writes here, until the copy is done,
        // which is awaited below; the stream is borrowed, so it is live.
        Direction::Down => unsafe { cuMemcpyDtoHAsync_v2(host, device, bytes, raw) },
    };
    // SAFETY: the stream is live.
    let waited = unsafe { cuStreamSynchronize(raw) };
    first_error(copied, waited)
}

/// The first of two results that is an error.
pub(super) fn first_error(first: CUresult, second: CUresult) -> CUresult {
    if first == CUDA_SUCCESS { second } else { first }
}
