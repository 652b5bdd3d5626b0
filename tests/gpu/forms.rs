//! Every way to copy bytes to a device, on it, and back.

use cuda_core::{
    Batch, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, PinnedBuffer, Result, Shape, Stream,
    StreamKind,
};
use support::{Driver, assert_bytes, pattern};

/// Ways to copy from the host to a device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Up {
    /// `upload`, from pinned memory.
    Pinned,
    /// `upload`, from a borrowed slice.
    Borrowed,
    /// `upload_owned`, from a vector that is handed over.
    Owned,
    /// `copy_pitched`, as one row.
    Row,
    /// `enqueue`, in two halves.
    Batch,
}

/// Ways to copy from a device to the host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Down {
    /// `download`, to pinned memory.
    Pinned,
    /// `download`, to a borrowed slice.
    Borrowed,
    /// `scope`, to borrowed slices.
    Scope,
    /// `download_owned`, to a vector.
    Owned,
    /// `copy_pitched`, as one row.
    Row,
    /// `enqueue`, in two halves.
    Batch,
}

impl Up {
    pub(crate) const ALL: [Self; 5] =
        [Self::Pinned, Self::Borrowed, Self::Owned, Self::Row, Self::Batch];

    pub(crate) fn send<K: StreamKind>(
        self,
        stream: &Stream<K>,
        bytes: &[u8],
        to: DeviceSliceMut<'_, u8>,
    ) -> Result<()> {
        match self {
            Self::Pinned => {
                let source = PinnedBuffer::from_slice(stream.context(), bytes)?;
                stream.upload(&source, to)
            }
            Self::Borrowed => stream.upload(bytes, to),
            Self::Owned => {
                let flight = stream.upload_owned(bytes.to_vec(), to);
                flight.map(drop).map_err(Error::from)
            }
            Self::Row => {
                let row = Shape::plane(bytes.len(), 1);
                let source = PinnedBuffer::from_slice(stream.context(), bytes)?;
                stream.copy_pitched(source.pitched(row)?, to.pitched(row)?)
            }
            Self::Batch => {
                let half = bytes.len() / 2;
                let source = PinnedBuffer::from_slice(stream.context(), bytes)?;
                let (low, high) = to.split_at_mut(half)?;
                let mut batch = Batch::new();
                batch.upload(source.slice(..half)?, low)?;
                batch.upload(source.slice(half..)?, high)?;
                stream.enqueue(batch)
            }
        }
    }
}

impl Down {
    pub(crate) const ALL: [Self; 6] =
        [Self::Pinned, Self::Borrowed, Self::Scope, Self::Owned, Self::Row, Self::Batch];

    pub(crate) fn fetch<K: StreamKind>(
        self,
        stream: &Stream<K>,
        from: DeviceSlice<'_, u8>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; from.len()];
        match self {
            Self::Pinned => {
                let mut target = PinnedBuffer::zeroed(stream.context(), from.len())?;
                stream.download(from, &mut target)?;
                bytes.copy_from_slice(target.as_slice()?);
            }
            Self::Borrowed => stream.download(from, &mut bytes)?,
            Self::Scope => stream.scope(|scope| scope.download(from, &mut bytes))?,
            Self::Owned => {
                let flight = stream.download_owned(from, bytes);
                let flight = flight?;
                bytes = flight.wait()?;
            }
            Self::Row => {
                let row = Shape::plane(from.len(), 1);
                let mut target = PinnedBuffer::zeroed(stream.context(), from.len())?;
                stream.copy_pitched(from.pitched(row)?, target.pitched_mut(row)?)?;
                bytes.copy_from_slice(target.as_slice()?);
            }
            Self::Batch => {
                let half = from.len() / 2;
                let mut target = PinnedBuffer::zeroed(stream.context(), from.len())?;
                let (low, high) = target.split_at_mut(half)?;
                let mut batch = Batch::new();
                batch.download(from.slice(..half)?, low)?;
                batch.download(from.slice(half..)?, high)?;
                stream.enqueue(batch)?;
                bytes.copy_from_slice(target.as_slice()?);
            }
        }
        Ok(bytes)
    }
}

/// Copies `len` bytes up on `stream`, copies and fills them there, and copies them down, in every
/// combination. The buffers' home is `home`, which may be another stream.
#[track_caller]
pub(crate) fn every_form<K: StreamKind>(
    stream: &Stream<K>,
    home: &Stream,
    len: usize,
) -> Result<()> {
    for up in Up::ALL {
        for (index, down) in Down::ALL.into_iter().enumerate() {
            let bytes = varied(index as u64, len);
            let mut first = home.alloc::<u8>(len)?;
            let mut second = home.alloc_zeroed::<u8>(len)?;
            up.send(stream, &bytes, (&mut first).into())?;
            stream.copy(&first, &mut second)?;
            let back = down.fetch(stream, (&second).into())?;
            same(&back, &bytes, &format!("{len} bytes, up {up:?}, down {down:?}"));
            stream.fill(&mut second, 0xC3)?;
            let back = down.fetch(stream, (&second).into())?;
            same(&back, &vec![0xC3; len], &format!("{len} filled, down {down:?}"));
        }
    }
    Ok(())
}

/// Returns the bytes of a whole buffer.
pub(crate) fn contents(stream: &Stream, buffer: &DeviceBuffer<u8>) -> Result<Vec<u8>> {
    Down::Borrowed.fetch(stream, buffer.into())
}

/// Like `assert_bytes`, with a name, and quick if both are equal, which matters under Miri.
#[track_caller]
pub(crate) fn same(actual: &[u8], expected: &[u8], what: &str) {
    if actual != expected {
        eprintln!("{what}:");
        assert_bytes(actual, expected);
    }
}

/// Like `pattern`, but cheap for many mebibytes: a block of prime length, repeated, with the number of each
/// page in it.
pub(crate) fn varied(seed: u64, len: usize) -> Vec<u8> {
    const BLOCK: usize = 4093;
    const PAGE: usize = 65_536;
    if len <= BLOCK {
        return pattern(seed, len);
    }
    let block = pattern(seed, BLOCK);
    let mut bytes = Vec::with_capacity(len + BLOCK);
    while bytes.len() < len {
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(len);
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        if let Some(stamp) = page.first_chunk_mut() {
            *stamp = (seed.rotate_left(32) ^ number as u64).to_le_bytes();
        }
    }
    bytes
}

/// Selects a size: for real devices, for the simulated driver, which uses host memory, or for Miri, which is
/// slow.
pub(crate) fn scaled(real: usize, simulated: usize, interpreted: usize) -> usize {
    if cfg!(miri) {
        return interpreted;
    }
    match Driver::selected() {
        Driver::Loaded => real,
        Driver::Simulated { .. } => simulated,
    }
}
