//! Logs in the format of docs/traces.md.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use cuda_core::adaptors::{Limiting, Logging};
use cuda_core::{Allocator, Result};
use support::gpu_test;

use super::{MIB, Shared, alloc, out_of_memory, shared, stream};

gpu_test! {
    needs 1;
    fn a_log_says_what_happened() -> Result<()> {
        let stream = stream()?;
        let log = Shared::default();
        let inner = Limiting::new(Allocator::driver_pool(), 2 * MIB);
        let logging = Logging::new(inner, log.clone()).expect("writing to memory");
        let (logging, allocator) = shared(logging);
        let first = alloc(&allocator, &stream, MIB)?;
        out_of_memory(alloc(&allocator, &stream, 3 * MIB));
        let address = first.as_raw();
        drop(first);
        thread::scope(|scope| {
            let elsewhere = || drop(alloc(&allocator, &stream, 100).expect("little enough"));
            scope.spawn(elsewhere).join().expect("no panic");
        });
        logging.flush().expect("writing to memory");

        let text = log.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# cuda-core allocation log, version 1");
        assert_eq!(lines[1], "time_ns,thread,device,stream,op,address,bytes");
        let lines: Vec<Vec<_>> = lines[2..].iter().map(|line| line.split(',').collect()).collect();
        let id = stream.id().to_string();
        let at = format!("{address:#x}");
        let (mib, three) = (MIB.to_string(), (3 * MIB).to_string());
        let expected = [
            ("allocate", at.as_str(), mib.as_str()),
            ("allocate_failed", "0x0", three.as_str()),
            ("deallocate", at.as_str(), mib.as_str()),
        ];
        for (line, (op, address, bytes)) in lines.iter().zip(expected) {
            assert_eq!(line[2..], ["0", id.as_str(), op, address, bytes]);
        }
        assert_eq!((lines.len(), lines[3][4], lines[4][4]), (5, "allocate", "deallocate"));
        assert_ne!(lines[0][1], lines[3][1], "another thread");
        let times: Vec<u64> = lines.iter().map(|line| line[0].parse().expect("a time")).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(logging.lost(), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_log_goes_to_a_file() -> Result<()> {
        let stream = stream()?;
        let file = std::env::temp_dir().join(format!("allocations-{}.csv", std::process::id()));
        std::fs::write(&file, "what an earlier run has left").expect("a file");
        let logging = Logging::to_file(Allocator::plain(), &file).expect("a file");
        let (logging, allocator) = shared(logging);
        drop(alloc(&allocator, &stream, 100)?);
        logging.flush().expect("written");
        let text = std::fs::read_to_string(&file).expect("text");
        std::fs::remove_file(&file).expect("removed");
        assert!(text.starts_with("# cuda-core allocation log, version 1\n"), "{text}");
        let ops = text.lines().skip(2).map(|line| line.split(',').nth(4));
        assert_eq!(ops.collect::<Vec<_>>(), [Some("allocate"), Some("deallocate")]);
        Ok(())
    }
}

/// A writer that accepts this many lines, and calls the function for each further one.
struct Failing(u32, fn() -> io::Result<()>);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            (self.1)()?;
        }
        self.0 -= 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_log_that_cannot_be_written_ends() -> Result<()> {
        let stream = stream()?;
        let full = || Err(io::Error::new(io::ErrorKind::StorageFull, "no room"));
        for (failure, kind) in [
            (full as fn() -> io::Result<()>, io::ErrorKind::StorageFull),
            (|| panic!("in the writer"), io::ErrorKind::Other),
        ] {
            let logging = Logging::new(Allocator::driver_pool(), Failing(2, failure));
            let (logging, allocator) = shared(logging.expect("the heading fits"));
            for _ in 0..3 {
                drop(alloc(&allocator, &stream, 100)?);
            }
            assert_eq!(logging.lost(), 5, "of six lines");
            assert_eq!(logging.flush().expect_err("the log has ended").kind(), kind);
        }
        let refused = Logging::new(Allocator::driver_pool(), Failing(0, full));
        assert!(refused.is_err());
        Ok(())
    }
}

/// A writer that flushes the very log that writes to it.
struct Flushing {
    log: Arc<OnceLock<Weak<Logging<Allocator>>>>,
    refused: Arc<OnceLock<io::ErrorKind>>,
}

impl Write for Flushing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            let refused = log.flush().expect_err("the log is being written");
            self.refused.get_or_init(|| refused.kind());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_writer_that_flushes_its_own_log_gets_an_error() -> Result<()> {
        let stream = stream()?;
        let (log, refused) = (Arc::default(), Arc::default());
        let writer = Flushing { log: Arc::clone(&log), refused: Arc::clone(&refused) };
        let logging = Logging::new(Allocator::driver_pool(), writer);
        let (logging, allocator) = shared(logging.expect("writing to memory"));
        log.set(Arc::downgrade(&logging)).expect("set once");
        drop(alloc(&allocator, &stream, 100)?);
        assert_eq!(refused.get(), Some(&io::ErrorKind::Other));
        assert_eq!(logging.lost(), 0);
        Ok(())
    }
}
