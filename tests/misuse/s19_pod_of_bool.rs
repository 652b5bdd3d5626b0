//~ E0277
// A device may write 2 to a `bool`.
#[cfg(misuse)]
type Flag = bool;
#[cfg(not(misuse))]
type Flag = u8;

cuda_core::pod! {
    struct Element {
        flag: Flag,
    }
}

fn main() {
    let _ = |element: Element| element.flag;
}
