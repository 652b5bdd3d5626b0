//! Runs checks in a child of `fork`.

use std::ffi::c_int;

/// Seconds after which a child that hangs is killed.
const PATIENCE: u32 = 60;

/// Runs `child` in a fork of this process; the value it returns is the exit code, 0 for success.
///
/// The child does not return, unwind or run exit handlers: only the forking thread exists in it.
pub fn in_a_fork(child: impl FnOnce() -> u8) {
    // SAFETY: the child has a copy of this thread only; what it runs below takes locks of the
    // library under test, which is what the test is about, and of the memory allocator, which glibc
    // and musl make usable in a child.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: takes a number; the signal's default action ends the child.
        unsafe { libc::alarm(PATIENCE) };
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(c_int::from(answer.unwrap_or(u8::MAX))) };
    }
    let mut status = 0;
    // SAFETY: `pid` is a child of this process that no other code waits for; `status` is valid for
    // a write.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid, "waitpid: {}", std::io::Error::last_os_error());
    assert!(
        !libc::WIFSIGNALED(status),
        "the child was ended by signal {}{}",
        libc::WTERMSIG(status),
        if libc::WTERMSIG(status) == libc::SIGALRM { ": it hung" } else { "" },
    );
    assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the check that failed");
}
