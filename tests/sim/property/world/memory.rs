//! Memory of all kinds, represented as two: device memory and host memory.

use cuda_core::{
    Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, PinnedSlice, PinnedSliceMut,
    Registered, Stream, StreamKind, managed::ManagedBuffer,
};

use crate::property::outcome::{Contents, Departure, Done, same};

/// Memory with the model of its contents.
pub(in crate::property) struct Held<M> {
    pub(in crate::property) memory: M,
    pub(in crate::property) contents: Contents,
}

pub(in crate::property) enum OfDevice {
    Plain(DeviceBuffer<u8>),
    Managed(ManagedBuffer<u8>),
}

impl OfDevice {
    pub(in crate::property) fn len(&self) -> usize {
        self.view().len()
    }

    pub(in crate::property) fn view(&self) -> DeviceSlice<'_, u8> {
        match self {
            Self::Plain(buffer) => buffer.as_view(),
            Self::Managed(buffer) => buffer.as_view(),
        }
    }

    pub(in crate::property) fn view_mut(&mut self) -> DeviceSliceMut<'_, u8> {
        match self {
            Self::Plain(buffer) => buffer.as_view_mut(),
            Self::Managed(buffer) => buffer.as_view_mut(),
        }
    }

    /// Returns the device whose streams may use it; for managed memory, the stream's own device.
    pub(in crate::property) fn device_for<K: StreamKind>(&self, stream: &Stream<K>) -> Device {
        match self {
            Self::Plain(buffer) => buffer.device(),
            Self::Managed(_) => stream.device(),
        }
    }
}

pub(in crate::property) enum OfHost {
    Pinned(PinnedBuffer<u8>),
    Registered(Registered<Vec<u8>>),
}

impl OfHost {
    pub(in crate::property) fn len(&self) -> usize {
        self.view().len()
    }

    pub(in crate::property) fn view(&self) -> PinnedSlice<'_, u8> {
        match self {
            Self::Pinned(buffer) => buffer.as_view(),
            Self::Registered(buffer) => buffer.as_view(),
        }
    }

    pub(in crate::property) fn view_mut(&mut self) -> PinnedSliceMut<'_, u8> {
        match self {
            Self::Pinned(buffer) => buffer.as_view_mut(),
            Self::Registered(buffer) => buffer.as_view_mut(),
        }
    }
}

/// Compares all memory with the model.
pub(in crate::property) fn compare(device: &[Held<OfDevice>], host: &[Held<OfHost>]) -> Done {
    for (index, held) in device.iter().enumerate() {
        let view = held.memory.view();
        let mut bytes = vec![0; view.len()];
        let stream = view.device().create_stream()?;
        stream.download(view, &mut bytes)?;
        located(same(&bytes, &held.contents), "device buffer", index)?;
    }
    for (index, held) in host.iter().enumerate() {
        let compared = same(held.memory.view().as_slice()?, &held.contents);
        located(compared, "buffer of the host", index)?;
    }
    Ok(())
}

pub(super) fn located(compared: Result<(), String>, what: &str, index: usize) -> Done {
    compared.map_err(|wrong| Departure::Wrong(format!("{what} {index}: {wrong}")))
}
