//! Formatting of errors.

use std::ffi::{CString, OsStr};
use std::fmt;

use cuda_sys::CUresult;

use super::{Error, Result};
use crate::types::MemoryInfo;

/// The code's name and description: "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
pub(super) fn describe(code: CUresult) -> String {
    match (code.name(), code.description()) {
        (Some(name), Some(description)) => format!("{name} ({}): {description}", code.0),
        _ => format!("error {}", code.0),
    }
}

/// Returns the text that C wrote into a buffer, up to its NUL.
pub(crate) fn c_text(bytes: &[u8]) -> String {
    let written = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(written).into_owned()
}

/// Converts a text or a path for C, where a NUL ends the string; the text must contain none.
pub(crate) fn c_string(op: &'static str, text: impl AsRef<OsStr>) -> Result<CString> {
    CString::new(text.as_ref().as_encoded_bytes()).map_err(|nul| {
        Error::invalid(op, format!("the text has a NUL byte at position {}", nul.nul_position()))
    })
}

/// Puts a compiler's log on lines below the message that it belongs to.
pub(super) fn on_lines_of_its_own(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

pub(super) fn shortage(memory: &Option<MemoryInfo>, device: u32) -> String {
    match memory {
        Some(info) => format!(", {info} on device {device}"),
        None => format!(" on device {device}"),
    }
}

pub(super) fn within(limit: Option<usize>) -> String {
    limit.map_or_else(String::new, |limit| format!(", limit {}", ByteCount(limit)))
}

/// `12 GiB of 139 GiB free`.
impl fmt::Display for MemoryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} free", ByteCount(self.free), ByteCount(self.total))
    }
}

/// Writes the variable that hides devices from the process, if it is set.
pub(super) fn visible_devices(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        Some(list) => write!(f, " (CUDA_VISIBLE_DEVICES is {list:?})"),
        None => Ok(()),
    }
}

/// Formats a number of things: "1 node", "3 nodes".
pub(crate) fn counted(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// A byte count in a readable unit: "64 GiB", "1.5 MiB", "12 bytes".
pub(crate) struct ByteCount(pub(crate) usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.write_str(&counted(self.0, "byte", "bytes"));
        }
        let power = (self.0.ilog2() / 10).min(UNITS.len() as u32);
        let unit = 1u128 << (10 * power);
        let tenths = (self.0 as u128 * 10 + unit / 2) / unit;
        write!(f, "{}", tenths / 10)?;
        if tenths % 10 != 0 {
            write!(f, ".{}", tenths % 10)?;
        }
        write!(f, " {}", UNITS[power as usize - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{GraphUpdate, OutOfBounds, OutOfHostMemory, OutOfMemory, PoolExhausted};
    use crate::types::usage::PoolUsage;

    #[test]
    fn bytes_read_like_a_person_writes_them() {
        assert_eq!(ByteCount(1).to_string(), "1 byte");
        assert_eq!(ByteCount(12).to_string(), "12 bytes");
        assert_eq!(ByteCount(64 << 30).to_string(), "64 GiB");
        assert_eq!(ByteCount(3 << 19).to_string(), "1.5 MiB");
        assert_eq!(ByteCount(usize::MAX).to_string(), "16 EiB");
    }

    #[test]
    fn text_ends_at_its_nul() {
        assert_eq!(c_text(b"a line\n\0rubbish"), "a line\n");
        assert_eq!(c_text(b"full"), "full");
        assert_eq!(c_text(b""), "");
    }

    #[test]
    fn errors_show_variant_code_and_what_to_do() {
        let lost = Error::Driver { op: "cuCtxSynchronize", code: CUresult(719) };
        assert_eq!(
            format!("{lost:?}"),
            "Driver(cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure; \
             earlier work has failed: only a new process can use the device; with \
             CUDA_LAUNCH_BLOCKING=1 the launch of the kernel itself returns the error, and \
             compute-sanitizer names the instruction)"
        );
        assert_eq!(Error::check("cuCtxSynchronize", CUresult(719)), Err(lost));
        assert_eq!(Error::check("cuCtxSynchronize", cuda_sys::CUDA_SUCCESS), Ok(()));
        let unknown = Error::Driver { op: "cuInit", code: CUresult(12345) };
        assert_eq!(unknown.to_string(), "cuInit: error 12345");
        let reversed = Error::from(OutOfBounds { start: 5, end: 3, len: 9 });
        assert_eq!(reversed.to_string(), "range 5..3 ends before it begins");
    }

    #[test]
    fn what_a_capture_refuses_is_answered_by_what_to_do_instead() {
        for (op, instead) in [
            ("cuMemcpyHtoDAsync", "use a `PinnedBuffer` or `Registered` memory, and lend it"),
            ("cuStreamWaitValue64", "the graph around it can"),
            ("ncclAllReduce", "the graph around it can"),
            ("cuEventRecordWithFlags", "the graph around it can"),
            ("cuGraphAddChildGraphNode", "the graph around it can"),
            ("cuMemAllocAsync", "`alloc_in_graph`"),
            ("cuSignalExternalSemaphoresAsync", "on the stream of the launch"),
            ("cuLaunchHostFunc", "`launch_host_func_each`"),
            ("cuMemcpyHtoDAsync", "for slices, and memory that a copy owns"),
            ("cuStreamWaitEvent", "`wait_event_each`"),
            ("cuStreamWaitEvent", "`Graph::capture`"),
            ("cuStreamSynchronize", "wait after the launch"),
            ("cuEventElapsedTime", "the event was last recorded in a capture"),
            ("cuGraphLaunch", "`Graph::include`"),
            ("ncclGroupEnd", "`Graph::capture`"),
            ("DeviceGroup::from_streams", "`Graph::capture`"),
            ("as_slice", "access the memory after that"),
            ("cuMemFreeAsync", "the stream is being captured, or was"),
        ] {
            let text = Error::NotCapturable { op }.to_string();
            assert!(text.starts_with(op) && text.contains(instead), "{text}");
        }
        let text = Error::Capturing { op: "cuCtxSynchronize" }.to_string();
        assert!(text.contains("a stream of the context") && !text.contains("other code"), "{text}");
    }

    #[test]
    fn a_failed_update_says_which_node_differs() {
        let why = cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        let text = |node, dependency, operation: Option<&str>| {
            let operation = operation.map(str::to_owned);
            Error::from(GraphUpdate { why, node, dependency, operation }).to_string()
        };
        let start = "cuGraphExecUpdate: the executable is unchanged, since the operations differ in number or \
                     dependencies";
        assert_eq!(text(None, None, None), start);
        let known = text(Some(3), None, Some("scale <<<4, 256>>>"));
        assert_eq!(known, format!("{start}: node 3 (scale <<<4, 256>>>)"));
        let after = text(Some(3), Some(1), Some("fill of 4 bytes"));
        assert_eq!(after, format!("{start}: node 3 (fill of 4 bytes) comes after node 1"));
    }

    #[test]
    fn an_error_of_a_group_says_all_itself() {
        let inner = Error::InCallback;
        let error = Error::OnDevice { device: 3, error: Box::new(inner.clone()) };
        assert_eq!(error.to_string(), format!("device 3: {inner}"));
        assert!(std::error::Error::source(&error).is_none(), "a chain would say it twice");
    }

    #[test]
    fn a_pool_says_whether_its_limit_or_the_device_is_short() {
        let usage = PoolUsage { used: 64 << 20, limit: Some(64 << 20), ..PoolUsage::default() };
        let requested = 16 << 20;
        let text = |free| {
            let (device, memory) = (0, Some(MemoryInfo { free, total: 141 << 30 }));
            Error::from(PoolExhausted { requested, device, usage, memory }).to_string()
        };
        let counts = "64 MiB in use, 0 bytes free, 0 bytes pending, largest free block 0 bytes";
        assert_eq!(
            text(140 << 30),
            format!(
                "the caching pool cannot serve 16 MiB within its limit of 64 MiB ({counts}); device 0 \
                 has 140 GiB free"
            )
        );
        assert_eq!(
            text(1 << 20),
            format!(
                "the caching pool cannot serve 16 MiB, 1 MiB of 141 GiB free on device 0 ({counts}, \
                 limit 64 MiB)"
            )
        );
    }

    #[test]
    fn out_of_memory_says_what_was_asked_and_what_was_left() {
        let of = |op, requested, free| {
            let memory = Some(MemoryInfo { free, total: 139 << 30 });
            Error::from(OutOfMemory { op, requested, device: 0, memory }).to_string()
        };
        let text = |requested, free| of("cuMemAllocAsync", requested, free);
        assert_eq!(
            text(64 << 30, 12 << 30),
            "cuMemAllocAsync: out of memory (requested 64 GiB, 12 GiB of 139 GiB free on device 0)"
        );
        assert!(text(1 << 30, 12 << 30).ends_with(
            "free on device 0): the free memory may be fragmented, or taken by another allocation since"
        ));
        assert!(of("cuMemAllocFromPoolAsync", 1 << 30, 12 << 30).contains("its `max_size`"));
        let host = Error::from(OutOfHostMemory { op: "cuMemHostAlloc", requested: 4 << 30 });
        assert_eq!(host.to_string(), "cuMemHostAlloc: the host is out of memory (requested 4 GiB)");
        assert!(host.is_out_of_memory());
    }
}
