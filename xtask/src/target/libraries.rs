//! Libraries that some tests need besides the driver.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The variable that names libcudart to the test programs; rows set it to the library found here.
pub(crate) const RUNTIME: &str = "CUDA_TESTS_LIBCUDART";

/// The variable that names libcudadevrt to the test programs; rows set it to the archive found here.
pub(crate) const DEVICE_RUNTIME: &str = "CUDA_TESTS_LIBCUDADEVRT";

/// The libraries, or the reason why each is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Libraries {
    pub(crate) runtime: Result<Library, String>,
    pub(crate) nvrtc: Result<Library, String>,
    /// The path of the archive.
    pub(crate) device_runtime: Result<String, String>,
    pub(crate) nccl: Result<Library, String>,
}

/// A library that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Library {
    /// The library's file if the system reports it, else the name by which it was found.
    pub(crate) path: String,
    /// The library's version; for all but NCCL, the version of the CUDA release that it belongs to.
    pub(super) version: String,
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, nvrtc, device_runtime, nccl } = self;
        let library = |library: &Result<Library, String>| {
            library.clone().map(|Library { path, version }| format!(" {version}: {path}"))
        };
        for (name, found) in [
            ("libcudart", library(runtime)),
            ("NVRTC", library(nvrtc)),
            ("NCCL", library(nccl)),
            ("libcudadevrt", device_runtime.clone().map(|path| format!(": {path}"))),
        ] {
            match found {
                Ok(found) => writeln!(f, "{name}{found}")?,
                Err(reason) => writeln!(f, "no {name}: {reason}")?,
            }
        }
        Ok(())
    }
}
