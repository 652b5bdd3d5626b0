//! Properties of a test, read from its path; `tests/support/macros.rs` creates the paths.

/// A property of a GPU test that decides where it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Asserts that a call returns while the device is busy.
    Asynchronous,
    /// Asserts a duration or a rate.
    Timing,
    /// Too slow for Miri.
    Heavy,
    /// Makes the device fault on purpose.
    Faulting,
    /// Has no meaning on the simulated driver.
    Real,
    /// Needs a libcudart.
    Runtime,
    /// Needs NVRTC.
    Nvrtc,
    /// Needs libcudadevrt, except on the simulated driver.
    DeviceRuntime,
    /// Needs NCCL, which the simulated driver has.
    Nccl,
    /// Needs a driver for that version of CUDA or a later one.
    Cuda(u32, u32),
}

impl Tag {
    const ALL: [(&'static str, Self); 13] = [
        ("asynchronous", Self::Asynchronous),
        ("timing", Self::Timing),
        ("heavy", Self::Heavy),
        ("faulting", Self::Faulting),
        ("real", Self::Real),
        ("runtime", Self::Runtime),
        ("nvrtc", Self::Nvrtc),
        ("cudadevrt", Self::DeviceRuntime),
        ("nccl", Self::Nccl),
        ("cuda_12_0", Self::Cuda(12, 0)),
        ("cuda_12_2", Self::Cuda(12, 2)),
        ("cuda_12_4", Self::Cuda(12, 4)),
        ("cuda_12_8", Self::Cuda(12, 8)),
    ];

    /// The tag's word in the test's path.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, tag)| *tag == self).map_or("", |(name, _)| name)
    }

    fn parse(segment: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == segment).map(|(_, tag)| *tag)
    }
}

/// A test of a program, as `--list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The path without requirement and tags.
    pub(crate) title: String,
    /// The number of devices that the test needs; zero if it was not declared with `gpu_test!`.
    pub(crate) needs: u32,
    pub(crate) tags: Vec<Tag>,
}

impl Case {
    /// Reads `module::a37_name::asynchronous::needs_2`.
    pub(crate) fn parse(name: &str) -> Self {
        let declared = name.rsplit_once("::needs_");
        let declared = declared.and_then(|(path, devices)| Some((path, devices.parse().ok()?)));
        let ((title, tags), needs) = match declared {
            Some((path, devices)) => (without_tags(path), devices),
            None => ((name, Vec::new()), 0),
        };
        Self { name: name.into(), title: title.into(), needs, tags }
    }
}

/// Splits a path into the part in front of its tags, and the tags.
fn without_tags(path: &str) -> (&str, Vec<Tag>) {
    let tags: Vec<Tag> = path.rsplit("::").map_while(Tag::parse).collect();
    let title = path.rsplitn(tags.len() + 1, "::").last().unwrap_or(path);
    (title, tags)
}

/// Reads a line of error output with a test's report, such as `noted: gpu::copies::j13::real: a figure`.
/// Returns the test's name, as in a table, and the text.
pub(crate) fn note(line: &str) -> Option<String> {
    let (path, text) = line.strip_prefix("noted: ")?.split_once(": ")?;
    let (_program, path) = path.split_once("::")?;
    Some(format!("{}: {text}", without_tags(path).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_its_test() {
        let line = "noted: gpu::copies::j13_overlap_pays::timing::real: one stream: 1 s";
        let expected = "copies::j13_overlap_pays: one stream: 1 s";
        assert_eq!(note(line).as_deref(), Some(expected));
        assert_eq!(note("copies::j13_overlap_pays: 1 s"), None);
    }

    #[test]
    fn a_path_says_needs_and_tags() {
        let case = Case::parse("guards::a37_sync::timing::asynchronous::needs_2");
        assert_eq!(case.needs, 2);
        assert_eq!(case.tags, [Tag::Asynchronous, Tag::Timing]);
        assert_eq!(case.title, "guards::a37_sync");
        let case = Case::parse("nvrtc::m_binaries::cuda_12_4::nvrtc::needs_1");
        assert_eq!(case.tags, [Tag::Nvrtc, Tag::Cuda(12, 4)]);
        assert_eq!(case.title, "nvrtc::m_binaries");
    }

    #[test]
    fn a_plain_test_needs_nothing() {
        let case = Case::parse("timing::parses");
        assert_eq!((case.needs, case.tags.len()), (0, 0));
        assert_eq!(case.title, "timing::parses");
    }
}
