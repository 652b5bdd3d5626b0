//~ E0133
use cuda_core::{Context, DeviceBuffer, Result, interop::IpcMemoryHandle};

fn open(context: &Context, handle: IpcMemoryHandle) -> Result<DeviceBuffer<u32>> {
    #[cfg(misuse)]
    return DeviceBuffer::open_ipc(context, handle, 16);
    // SAFETY: never called.
    #[cfg(not(misuse))]
    return unsafe { DeviceBuffer::open_ipc(context, handle, 16) };
}

fn main() {}
