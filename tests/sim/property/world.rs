//! The objects of a program with the model of their contents, and what each step does to both.

pub(super) mod act;
mod forgotten;

use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::{Context, Device, DeviceBuffer, PinnedBuffer, Stream};

pub(super) use forgotten::Forgotten;

/// What is known of each element; [`None`]: nothing, since nobody wrote it.
pub(super) type Contents = Vec<Option<u8>>;

/// Everything that threads share.
pub(super) struct World {
    contexts: Vec<Context>,
    streams: Vec<Stream>,
    device: Vec<(DeviceBuffer<u8>, Contents)>,
    /// Addresses that a default stream allocated. Such a buffer is not forgotten: it would keep the
    /// stream, and what later programs do with it, for good.
    on_default_streams: Vec<u64>,
    pinned: Vec<(PinnedBuffer<u8>, Contents)>,
    calls: Calls,
    forgotten: Forgotten,
}

/// Host functions: how many were launched on each stream, by id, and which have run.
#[derive(Debug, Default)]
struct Calls {
    launched: Vec<(u64, usize)>,
    ran: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Calls {
    /// A host function for that stream.
    fn next(&mut self, stream: u64) -> impl FnOnce() + Send + use<> {
        let number = self.launched.iter().filter(|(id, _)| *id == stream).count();
        self.launched.push((stream, number));
        let ran = Arc::clone(&self.ran);
        move || {
            ran.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((stream, number))
        }
    }

    /// Each has run once, in the order of its stream.
    fn compare(&self) -> Result<(), String> {
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |calls: &[(u64, usize)], stream: u64| -> Vec<usize> {
            calls
                .iter()
                .filter(|(id, _)| *id == stream)
                .map(|(_, number)| *number)
                .collect()
        };
        for (stream, _) in &self.launched {
            let (expected, actual) = (of(&self.launched, *stream), of(&ran, *stream));
            if actual != expected {
                return Err(format!(
                    "host functions of stream {stream} ran as {actual:?}"
                ));
            }
        }
        Ok(())
    }
}

impl World {
    /// Two devices and a stream on each.
    pub(super) fn new() -> Result<Self, String> {
        let make = || -> cuda_core::Result<Self> {
            let contexts = vec![Device::get(0)?.context()?, Device::get(1)?.context()?];
            let streams = contexts.iter().map(Context::create_stream);
            Ok(Self {
                streams: streams.collect::<cuda_core::Result<_>>()?,
                contexts,
                device: Vec::new(),
                on_default_streams: Vec::new(),
                pinned: Vec::new(),
                calls: Calls::default(),
                forgotten: Forgotten::default(),
            })
        };
        make().map_err(|error| error.to_string())
    }

    /// Waits for all work and compares all memory and all host functions with the model.
    pub(super) fn compare_everything(&self) -> Result<(), String> {
        let compare = || -> cuda_core::Result<Result<(), String>> {
            for (index, (buffer, contents)) in self.device.iter().enumerate() {
                let mut bytes = vec![0; buffer.len()];
                let stream = buffer.device().create_stream()?;
                stream.download_to(buffer, &mut bytes)?;
                if let Err(error) = same(&bytes, contents) {
                    return Ok(Err(format!("device buffer {index}: {error}")));
                }
            }
            for (index, (buffer, contents)) in self.pinned.iter().enumerate() {
                if let Err(error) = same(buffer.as_slice()?, contents) {
                    return Ok(Err(format!("pinned buffer {index}: {error}")));
                }
            }
            for device in Device::all()? {
                device.synchronize()?;
            }
            for context in &self.contexts {
                context.synchronize()?;
            }
            Ok(Ok(()))
        };
        compare().map_err(|error| error.to_string())?
    }

    /// Lets go of everything, and says what nobody can let go of any more.
    pub(super) fn into_forgotten(self) -> Forgotten {
        let Self {
            contexts,
            streams,
            device,
            pinned,
            calls,
            mut forgotten,
            ..
        } = self;
        drop((device, contexts, pinned, streams));
        forgotten.calls = calls;
        forgotten
    }
}

/// Compares what is known.
pub(super) fn same(bytes: &[u8], contents: &[Option<u8>]) -> Result<(), String> {
    let wrong = |(byte, known): (&u8, &Option<u8>)| known.is_some_and(|known| known != *byte);
    match bytes.iter().zip(contents).position(wrong) {
        None if bytes.len() == contents.len() => Ok(()),
        at => Err(format!("at {at:?} {bytes:?}, expected {contents:?}")),
    }
}
