//! Threads for the length of one call.

use std::panic::resume_unwind;
use std::thread;

use crate::error::Result;

/// Runs `work` on this thread and on up to `threads - 1` more, until all of them have returned. The
/// first error is this thread's, then the others' in the order in which they were started.
///
/// The threads share out among themselves what there is to do, so one that cannot be started leaves
/// it to the others. They are new: nothing is current on them. A panic of one goes on here, after
/// all have ended.
pub(super) fn together(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let start = |_| {
            let thread = thread::Builder::new().name("cuda-core group".to_owned());
            thread.spawn_scoped(scope, &work).ok()
        };
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        others.into_iter().fold(own, |first, other| {
            let result = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            first.and(result)
        })
    })
}
