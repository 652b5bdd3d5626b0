//! Recorded allocations and frees: reads the format of docs/traces.md.

use std::collections::HashMap;
use std::iter;

use anyhow::{Context as _, bail, ensure};

/// The columns of version 1, in order.
const COLUMNS: &str = "time_ns,thread,device,stream,op,address,bytes";

/// The prefix of a comment with the bytes that another allocator reserved at its peak for the same
/// operations.
const RESERVED_BY: &str = "peak reserved by ";

/// A recorded sequence of allocations and frees.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The place where the log was recorded.
    pub(crate) source: Option<String>,
    /// The peaks, in bytes, that other allocators reserved for the log, by their names.
    pub(crate) reserved: Vec<(String, u64)>,
    /// The streams in the log, each with its device.
    pub(crate) streams: Vec<LoggedStream>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) steps: Vec<Step>,
    /// The number of ignored frees: of blocks that were allocated before the log began.
    pub(crate) orphans: usize,
}

/// A stream in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LoggedStream {
    pub(crate) device: u32,
    pub(crate) id: u64,
}

/// One block, from its allocation to its free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) bytes: usize,
    /// The index of the block's stream.
    pub(crate) stream: usize,
    /// The step that allocated it.
    pub(crate) from: usize,
    /// The step that freed it, if one did.
    pub(crate) until: Option<usize>,
}

/// An operation on the block with that index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Allocate(usize),
    Free(usize),
}

impl Log {
    /// Reads a log. Errors name the line.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut reader = Reader::default();
        let mut columns = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            } else if let Some(comment) = line.strip_prefix('#') {
                reader.comment(comment.trim());
            } else if columns {
                let place = || format!("line {}: {line}", number + 1);
                reader.line(line).with_context(place)?;
            } else {
                ensure!(line == COLUMNS, "line {}: the columns have to be {COLUMNS}", number + 1);
                columns = true;
            }
        }
        ensure!(columns, "no log: there is no line {COLUMNS}");
        Ok(reader.log)
    }

    /// Returns the bytes in use after each step.
    pub(crate) fn in_use(&self) -> Vec<u64> {
        let mut bytes = 0;
        let steps = self.steps.iter().map(|step| {
            match *step {
                Step::Allocate(block) => bytes += self.blocks[block].bytes as u64,
                Step::Free(block) => bytes -= self.blocks[block].bytes as u64,
            }
            bytes
        });
        steps.collect()
    }

    /// Returns the step after which most bytes are in use, the first one if there are several, and that
    /// number of bytes.
    pub(crate) fn peak(&self) -> (usize, u64) {
        let after = self.in_use().into_iter().enumerate();
        after.fold((0, 0), |peak, (step, bytes)| if bytes > peak.1 { (step, bytes) } else { peak })
    }
}

/// A log that is being read.
#[derive(Default)]
struct Reader {
    log: Log,
    live: HashMap<u64, usize>,
    /// Freed blocks by address: a later line may mark their free as failed.
    freed: HashMap<u64, usize>,
}

impl Reader {
    fn comment(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':') else {
            return;
        };
        if key == "source" {
            self.log.source = Some(value.trim().to_owned());
        } else if let (Some(name), Ok(bytes)) =
            (key.strip_prefix(RESERVED_BY), value.trim().parse())
        {
            self.log.reserved.push((name.to_owned(), bytes));
        }
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let fields: Vec<_> = line.split(',').collect();
        let [_time, _thread, device, stream, op, address, bytes] = fields[..] else {
            bail!("{} fields where there have to be 7", fields.len());
        };
        let stream = LoggedStream {
            device: device.parse().context("device")?,
            id: stream.parse().context("stream")?,
        };
        let digits = address.strip_prefix("0x").context("address: no 0x")?;
        let address = u64::from_str_radix(digits, 16).context("address")?;
        let bytes = bytes.parse().context("bytes")?;
        match op {
            "allocate" => self.allocate(stream, address, bytes)?,
            "deallocate" => self.free(address),
            "deallocate_failed" => {
                if let Some(block) = self.freed.remove(&address) {
                    self.undo_free(block);
                    self.live.insert(address, block);
                }
            }
            // The failed allocation had no effect.
            "allocate_failed" => {}
            other => bail!("no operation is called {other}"),
        }
        Ok(())
    }

    fn allocate(&mut self, on: LoggedStream, address: u64, bytes: usize) -> anyhow::Result<()> {
        let known = self.log.streams.iter().position(|stream| *stream == on);
        let stream = known.unwrap_or_else(|| {
            self.log.streams.push(on);
            self.log.streams.len() - 1
        });
        let block = self.log.blocks.len();
        let is_free = self.live.insert(address, block).is_none();
        ensure!(is_free, "the address is allocated already");
        self.freed.remove(&address);
        self.log.blocks.push(Block { bytes, stream, from: self.log.steps.len(), until: None });
        self.log.steps.push(Step::Allocate(block));
        Ok(())
    }

    fn free(&mut self, address: u64) {
        match self.live.remove(&address) {
            Some(block) => {
                let step = self.log.steps.len();
                self.log.blocks[block].until = Some(step);
                self.freed.insert(address, block);
                self.log.steps.push(Step::Free(block));
            }
            None => self.log.orphans += 1,
        }
    }

    /// Removes the step that freed a block: the free had failed.
    fn undo_free(&mut self, block: usize) {
        let Some(undone) = self.log.blocks[block].until.take() else { return };
        self.log.steps.remove(undone);
        for Block { from, until, .. } in &mut self.log.blocks {
            for step in iter::once(from).chain(until) {
                *step -= usize::from(*step > undone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
# cuda-core allocation log, version 1
# source: a test
# peak reserved by Other: 4096
time_ns,thread,device,stream,op,address,bytes
0,0,0,7,allocate,0x100,1000
1,0,1,9,allocate,0x200,500
2,0,0,7,allocate_failed,0x0,9999
3,1,0,7,deallocate,0x100,1000
4,1,0,7,deallocate_failed,0x100,1000
5,1,0,7,deallocate,0x300,5
6,0,0,7,deallocate,0x100,1000
7,0,0,7,allocate,0x100,2000
";

    #[test]
    fn what_happened_is_read_and_what_did_not_is_left_out() {
        let log = Log::parse(LOG).expect("a log");
        assert_eq!(log.source.as_deref(), Some("a test"));
        assert_eq!(log.reserved, [("Other".to_owned(), 4096)]);
        assert_eq!(log.streams.len(), 2);
        use Step::{Allocate, Free};
        assert_eq!(log.steps, [Allocate(0), Allocate(1), Free(0), Allocate(2)]);
        assert_eq!(log.blocks[0].until, Some(2));
        assert_eq!(log.blocks[2].from, 3);
        assert_eq!(log.in_use(), [1000, 1500, 500, 2500]);
        assert_eq!((log.peak(), log.orphans), ((3, 2500), 1));
    }

    #[test]
    fn what_is_no_log_is_refused_by_line() {
        let text = |line: &str| format!("{COLUMNS}\n{line}\n");
        for (line, what) in [
            ("1,2,3", "3 fields"),
            ("0,0,0,0,allocate,100,5", "0x"),
            ("0,0,0,0,allocate,0x1,-5", "bytes"),
            ("0,0,0,0,grow,0x1,5", "grow"),
        ] {
            let error = Log::parse(&text(line)).expect_err(line);
            let error = format!("{error:#}");
            assert!(error.contains("line 2") && error.contains(what), "{error}");
        }
        assert!(Log::parse("").is_err());
        assert!(Log::parse("time,op\n").is_err());
        let twice = text("0,0,0,0,allocate,0x1,5\n0,0,0,0,allocate,0x1,5");
        assert!(Log::parse(&twice).is_err());
    }
}
