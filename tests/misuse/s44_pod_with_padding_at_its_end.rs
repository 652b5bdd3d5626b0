//~ E0080
//~ says `Element` has padding after its last field
#[cfg(misuse)]
type Tag = u8;
#[cfg(not(misuse))]
type Tag = u32;

cuda_core::pod! {
    struct Element {
        value: u32,
        tag: Tag,
    }
}

fn main() {
    let _ = |element: Element| (element.tag, element.value);
}
