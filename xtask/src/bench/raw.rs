//! Whole transfers by raw driver calls.

use anyhow::ensure;
use cuda_core::Stream;
use cuda_sys::{
    CUDA_SUCCESS, CUdeviceptr, CUresult, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2,
    cuStreamSynchronize,
};

/// An error unless a call succeeded.
pub(crate) fn check(what: &str, code: CUresult) -> anyhow::Result<()> {
    ensure!(code == CUDA_SUCCESS, "{what}: error {}", code.0);
    Ok(())
}

/// The first of some results that is an error. All calls are made, also after one that fails.
pub(crate) fn first_error(codes: impl IntoIterator<Item = CUresult>) -> CUresult {
    let codes = codes.into_iter();
    codes.fold(CUDA_SUCCESS, |first, code| match first {
        CUDA_SUCCESS => code,
        _ => first,
    })
}

/// Waits for a stream. The first error counts: of what was enqueued before, or of the wait.
pub(crate) fn wait(enqueued: CUresult, stream: &Stream) -> CUresult {
    // SAFETY: the stream is live.
    let waited = unsafe { cuStreamSynchronize(stream.as_raw()) };
    first_error([enqueued, waited])
}

/// The direction of a transfer between the host and a device.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// One of two things, by direction.
    pub(super) fn pick<T>(self, up: T, down: T) -> T {
        match self {
            Self::Up => up,
            Self::Down => down,
        }
    }
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
    wait(copied, stream)
}
