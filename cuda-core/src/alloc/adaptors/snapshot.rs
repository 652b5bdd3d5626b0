//! Allocated and cached memory, as JSON.

use super::{Outstanding, Tracking};
use crate::alloc::caching::segments::{CacheBlock, CacheBlockState, CacheSegment};
use crate::alloc::{CachingPool, DeviceAllocator};
use crate::device::Device;
use crate::error::Result;

/// The blocks that an allocator has handed out at one moment, and the segments of the pools that it uses,
/// for tools to read.
///
/// ```no_run
/// use cuda_core::CachingPool;
/// use cuda_core::adaptors::{Snapshot, Tracking};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = CachingPool::new();
/// let tracking = Tracking::new(pool.allocator());
/// // ...
/// let snapshot = Snapshot::of(&tracking).with_pool(&pool)?;
/// std::fs::write("memory.json", snapshot.to_json())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct Snapshot {
    /// The allocator's name.
    pub allocator: String,
    /// Blocks that are allocated, in the order of their allocation.
    pub outstanding: Vec<Outstanding>,
    /// The segments that pools have taken from their devices.
    pub segments: Vec<CacheSegment>,
}

impl Snapshot {
    /// Takes a snapshot of the blocks that `tracking` has allocated now.
    pub fn of<A: DeviceAllocator>(tracking: &Tracking<A>) -> Self {
        Self {
            allocator: tracking.name().to_owned(),
            outstanding: tracking.outstanding(),
            segments: Vec::new(),
        }
    }

    /// Adds the segments that `pool` holds on all devices.
    ///
    /// # Errors
    /// Those of [`Device::all`].
    pub fn with_pool(mut self, pool: &CachingPool) -> Result<Self> {
        for device in Device::all()? {
            self.segments.extend(pool.segments(device));
        }
        Ok(self)
    }

    /// The snapshot as JSON: an object with `version`, which is 1, and this value's fields;
    /// addresses are strings such as `"0x7f2c14000000"`.
    pub fn to_json(&self) -> String {
        let allocator = string(&self.allocator);
        let outstanding = list(&self.outstanding, outstanding);
        let segments = list(&self.segments, segment);
        format!(
            "{{\"version\":1,\"allocator\":{allocator},\"outstanding\":{outstanding},\
             \"segments\":{segments}}}\n"
        )
    }
}

fn outstanding(block: &Outstanding) -> String {
    let Outstanding { number, address, bytes, stream, thread, backtrace, .. } = block;
    let device = block.device.ordinal();
    let backtrace = backtrace.as_ref().map(|trace| string(&trace.to_string()));
    let backtrace = backtrace.map_or_else(String::new, |text| format!(",\"backtrace\":{text}"));
    format!(
        "{{\"number\":{number},\"address\":\"{address:#x}\",\"bytes\":{bytes},\"device\":{device},\
         \"stream\":{stream},\"thread\":{thread}{backtrace}}}"
    )
}

fn segment(segment: &CacheSegment) -> String {
    let CacheSegment { address, bytes, .. } = segment;
    let (device, blocks) = (segment.device.ordinal(), list(&segment.blocks, block));
    format!(
        "{{\"device\":{device},\"address\":\"{address:#x}\",\"bytes\":{bytes},\"blocks\":{blocks}}}"
    )
}

fn block(block: &CacheBlock) -> String {
    let CacheBlock { address, bytes, .. } = block;
    let state = match block.state {
        CacheBlockState::Used => "used",
        CacheBlockState::Free => "free",
        CacheBlockState::Pending => "pending",
    };
    format!("{{\"address\":\"{address:#x}\",\"bytes\":{bytes},\"state\":\"{state}\"}}")
}

/// Writes an array with one element per line, so that people can read it, too.
fn list<T>(elements: &[T], element: fn(&T) -> String) -> String {
    let lines: Vec<_> = elements.iter().map(|value| format!("\n{}", element(value))).collect();
    format!("[{}]", lines.join(","))
}

/// Writes a string, escaped for JSON.
fn string(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            control if control < ' ' => json += &format!("\\u{:04x}", control as u32),
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::string;

    #[test]
    fn strings_are_escaped() {
        let json = string("a \"b\"\\\n\t\u{1}ü");
        assert_eq!(json, "\"a \\\"b\\\"\\\\\\n\\u0009\\u0001ü\"");
    }
}
