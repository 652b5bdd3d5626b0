//~ E0451
// A view of an address that somebody made up, or of more than there is.
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
