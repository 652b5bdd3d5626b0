//~ E0133
// A caller of `note_use` vouches for the uses that the library does not see.
use cuda_core::{Access, DeviceBuffer, Result, Stream};

fn used(stream: &Stream, buffer: &DeviceBuffer<u32>) -> Result<()> {
    #[cfg(misuse)]
    return buffer.note_use(stream, Access::Read);
    #[cfg(not(misuse))]
    // SAFETY: nothing reads or writes the buffer but this library.
    unsafe {
        buffer.note_use(stream, Access::Read)
    }
}

fn main() {}
