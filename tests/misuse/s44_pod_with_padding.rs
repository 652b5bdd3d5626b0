//~ E0080
//~ says `Element` has padding before `value`
// Three bytes of padding would lie between the two fields.
#[cfg(misuse)]
type Tag = u8;
#[cfg(not(misuse))]
type Tag = u32;

cuda_core::pod! {
    struct Element {
        tag: Tag,
        value: u32,
    }
}

fn main() {
    let _ = |element: Element| (element.tag, element.value);
}
