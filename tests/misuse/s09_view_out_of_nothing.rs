//~ E0451
// A view of an invented address, or of more bytes than the buffer has.
use cuda_core::{DeviceBuffer, DeviceSlice};

fn view(buffer: &DeviceBuffer<u8>) -> DeviceSlice<'_, u8> {
    let view = DeviceSlice::from(buffer);
    #[cfg(misuse)]
    let view = DeviceSlice {
        len: 1 << 40,
        ..view
    };
    view
}

fn main() {
    #[cfg(not(misuse))]
    let _: fn(&DeviceBuffer<u8>) -> DeviceSlice<'_, u8> = view;
}
