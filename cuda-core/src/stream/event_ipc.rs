//! Events that two processes share.

use std::ptr;

use cuda_sys::{CUipcEventHandle, symbol as cu};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::stream::event::Event;
use crate::timeline::{EventFlags, RawEvent};
use crate::util::sent_bytes;

sent_bytes! {
    /// The name by which another process opens an event: 64 opaque bytes, to be sent by any means.
    ///
    /// ```
    /// use cuda_core::interop::IpcEventHandle;
    ///
    /// let handle = IpcEventHandle::from_bytes([7; 64]);
    /// assert_eq!(handle.to_bytes(), [7; 64]);
    /// ```
    IpcEventHandle: CUipcEventHandle
}

/// # Sharing with other processes
impl Event {
    /// Returns a handle by which another process can open the event: `cuIpcGetEventHandle`. Works on Linux,
    /// and with limits on Windows.
    ///
    /// Both processes may then record, query and wait for the event until this process destroys it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an event without [`EventFlags::INTERPROCESS`]; the driver's, such as
    /// `NOT_SUPPORTED`.
    ///
    /// ```no_run
    /// use cuda_core::{Device, Event, EventFlags};
    ///
    /// let context = Device::get(0)?.context()?;
    /// let flags = EventFlags::INTERPROCESS | EventFlags::DISABLE_TIMING;
    /// let event = Event::new(&context, flags)?;
    /// let bytes = event.ipc_handle()?.to_bytes();
    /// // … send the bytes to another process …
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuIpcGetEventHandle", "cudaIpcGetEventHandle"))]
    pub fn ipc_handle(&self) -> Result<IpcEventHandle> {
        let op = "cuIpcGetEventHandle";
        let event = self.live()?;
        let why = "the event was created without INTERPROCESS";
        Error::unless(self.flags().contains(EventFlags::INTERPROCESS), op, why)?;
        // In older drivers the call depends on the current context.
        let handle = self.context().ask(op, [0; 64], |handle| {
            // SAFETY: the call writes a handle of this size, which is an array of bytes, to an
            // exclusive borrow; the caller holds the event.
            unsafe { cu::cuIpcGetEventHandle(ptr::from_mut(handle).cast(), event.as_raw()) }
        })?;
        Ok(IpcEventHandle(handle))
    }

    /// Opens an event of another process: `cuIpcOpenEventHandle`. The event behaves like one that was created
    /// here with [`EventFlags::DISABLE_TIMING`]; dropping it closes it.
    ///
    /// # Errors
    /// The driver's: `INVALID_HANDLE`, or `MAP_FAILED`, for bytes that are no handle, or for an event of
    /// another device than `context`'s; `NOT_SUPPORTED`.
    ///
    /// # Safety
    /// `handle` comes from [`Event::ipc_handle`], or from `cuIpcGetEventHandle`, in another process. That
    /// process does not destroy its event while this one is used.
    ///
    /// ```no_run
    /// # fn receive() -> [u8; 64] { [0; 64] }
    /// use cuda_core::{Device, Event, interop::IpcEventHandle};
    ///
    /// let context = Device::get(0)?.context()?;
    /// let handle = IpcEventHandle::from_bytes(receive());
    /// // SAFETY: the sender keeps its event until this process says that it is done.
    /// let event = unsafe { Event::open_ipc(&context, handle) }?;
    /// context.create_stream()?.wait_event(&event)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuIpcOpenEventHandle", "cudaIpcOpenEventHandle"))]
    pub unsafe fn open_ipc(context: &Context, handle: IpcEventHandle) -> Result<Self> {
        let handle = CUipcEventHandle { reserved: handle.0.map(|byte| byte as _) };
        let raw = context.call("cuIpcOpenEventHandle", ptr::null_mut(), |raw| {
            // SAFETY: the call writes one handle, to an exclusive borrow; the caller promises that `handle`
            // names a live event; a live context is current.
            unsafe { cu::cuIpcOpenEventHandle(raw, handle) }
        })?;
        // SAFETY: just opened, so no other code has it.
        let raw = unsafe { RawEvent::of(raw, context, None) };
        // The other process may record it after any work.
        Ok(Self::of(raw, EventFlags::DISABLE_TIMING, true))
    }
}
