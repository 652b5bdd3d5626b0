//! Allocated and cached memory, as JSON.

use std::fmt::Write;

use super::{Outstanding, Tracking};
use crate::alloc::DeviceAllocator;
use crate::alloc::caching::pool::CachingPool;
use crate::alloc::caching::segments::{CacheBlock, CacheBlockState, CacheSegment};
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
    /// What pools have taken from their devices.
    pub segments: Vec<CacheSegment>,
}

impl Snapshot {
    /// The blocks that `tracking` has allocated now.
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
        let mut json = String::from("{\"version\":1,\"allocator\":");
        string(&mut json, &self.allocator);
        json.push_str(",\"outstanding\":");
        list(&mut json, &self.outstanding, outstanding);
        json.push_str(",\"segments\":");
        list(&mut json, &self.segments, segment);
        json.push_str("}\n");
        json
    }
}

fn outstanding(json: &mut String, block: &Outstanding) {
    let Outstanding { number, address, bytes, stream, thread, .. } = block;
    let device = block.device.ordinal();
    // Writing to a string does not fail.
    let _ = write!(
        json,
        "{{\"number\":{number},\"address\":\"{address:#x}\",\"bytes\":{bytes},\"device\":{device},\
         \"stream\":{stream},\"thread\":{thread}"
    );
    if let Some(backtrace) = &block.backtrace {
        json.push_str(",\"backtrace\":");
        string(json, &backtrace.to_string());
    }
    json.push('}');
}

fn segment(json: &mut String, segment: &CacheSegment) {
    let CacheSegment { device, address, bytes, .. } = segment;
    let _ = write!(
        json,
        "{{\"device\":{},\"address\":\"{address:#x}\",\"bytes\":{bytes},\"blocks\":",
        device.ordinal()
    );
    list(json, &segment.blocks, block);
    json.push('}');
}

fn block(json: &mut String, block: &CacheBlock) {
    let state = match block.state {
        CacheBlockState::Used => "used",
        CacheBlockState::Free => "free",
        CacheBlockState::Pending => "pending",
    };
    let _ = write!(
        json,
        "{{\"address\":\"{:#x}\",\"bytes\":{},\"state\":\"{state}\"}}",
        block.address, block.bytes
    );
}

/// An array with one element per line, so that people can read it, too.
fn list<T>(json: &mut String, elements: &[T], mut element: impl FnMut(&mut String, &T)) {
    json.push('[');
    for (index, value) in elements.iter().enumerate() {
        json.push_str(if index == 0 { "\n" } else { ",\n" });
        element(json, value);
    }
    json.push(']');
}

/// A string, escaped for JSON.
fn string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", control as u32);
            }
            other => json.push(other),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::string;

    #[test]
    fn strings_are_escaped() {
        let mut json = String::new();
        string(&mut json, "a \"b\"\\\n\t\u{1}ü");
        assert_eq!(json, "\"a \\\"b\\\"\\\\\\n\\u0009\\u0001ü\"");
    }
}
