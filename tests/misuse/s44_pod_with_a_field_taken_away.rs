//~ E0026 E0609
// With the sizes of all fields that are written, the padding in place of `rest` would pass.
cuda_core::pod! {
    struct Element {
        tag: u8,
        #[cfg(not(misuse))]
        rest: [u8; 3],
        value: u32,
    }
}

fn main() {
    let _ = |element: Element| (element.tag, element.value);
    #[cfg(misuse)]
    const _: () = assert!(size_of::<Element>() == 8);
}
