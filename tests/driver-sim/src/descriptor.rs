//! File descriptors by which memory is exported. The exported memory belongs to the file, so duplicates of a
//! descriptor mean the same memory.

use std::ffi::c_int;

/// The file of a descriptor: equal for descriptors that are duplicates.
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

    /// Creates a file without a name, and returns its descriptor.
    pub(crate) fn descriptor() -> Option<(c_int, FileId)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuda-sim-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create_new(&path).ok()?;
        // If the removal fails, an empty file remains.
        let _ = fs::remove_file(&path);
        let id = id(&file)?;
        Some((file.into_raw_fd(), id))
    }

    /// Returns the file of a descriptor, if it is open.
    pub(crate) fn file(fd: c_int) -> Option<FileId> {
        if fd < 0 {
            return None;
        }
        // SAFETY: the file is only queried, which the system refuses if the descriptor is closed, and
        // `ManuallyDrop` never closes it.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        id(&file)
    }

    fn id(file: &File) -> Option<FileId> {
        let metadata = file.metadata().ok()?;
        Some(FileId(metadata.dev(), metadata.ino()))
    }

    /// Closes a descriptor whose ownership passed to the driver.
    pub(crate) fn close(fd: c_int) {
        // SAFETY: the descriptor is open, and the program handed it over.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    pub(crate) fn descriptor() -> Option<(c_int, FileId)> {
        None
    }

    pub(crate) fn file(_: c_int) -> Option<FileId> {
        None
    }

    pub(crate) fn close(_: c_int) {}
}

pub(crate) use system::{close, descriptor, file};
