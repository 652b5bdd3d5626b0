//! Descriptors that memory is exported by. What one means goes with its file, and so for duplicates too.

use std::ffi::c_int;

/// The file behind a descriptor: two descriptors of one file are duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(u64, u64);

#[cfg(unix)]
mod system {
    use std::fs::{self, File};
    use std::mem::ManuallyDrop;
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A descriptor of a file of its own, which has no name.
    pub(crate) fn descriptor() -> Option<c_int> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuda-sim-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create_new(&path).ok()?;
        // One that stays is empty.
        let _ = fs::remove_file(&path);
        Some(file.into_raw_fd())
    }

    /// The file behind a descriptor, if it is open.
    pub(crate) fn file(fd: c_int) -> Option<FileId> {
        if fd < 0 {
            return None;
        }
        // SAFETY: only asked for what it is, which the system refuses if it is closed, and never closed
        // here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let metadata = file.metadata().ok()?;
        Some(FileId(metadata.dev(), metadata.ino()))
    }

    /// The descriptor is the driver's now.
    pub(crate) fn close(fd: c_int) {
        // SAFETY: an open descriptor, which the program gave up.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    pub(crate) fn descriptor() -> Option<c_int> {
        None
    }

    pub(crate) fn file(_: c_int) -> Option<FileId> {
        None
    }

    pub(crate) fn close(_: c_int) {}
}

pub(crate) use system::{close, descriptor, file};
