//! Processor time.

/// Returns the processor time that the calling thread has used: tells a wait that blocks from one that spins.
///
/// # Panics
/// If the system has no such clock.
#[cfg(unix)]
pub fn thread_cpu_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the one `timespec` that the call writes.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "clock_gettime: {}", std::io::Error::last_os_error());
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
