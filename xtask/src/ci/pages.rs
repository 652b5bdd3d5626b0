//! Checks rustdoc's pages for the methods that a reader finds first.

use std::path::Path;

use anyhow::Context as _;
use fs_err as fs;

/// The first methods of types, in the order of their pages. rustdoc shows `impl` blocks in the order of the
/// `mod` lines in `lib.rs` and in its modules, so those lines decide it.
const FIRST: [(&str, &str); 8] = [
    ("struct.Stream", "alloc alloc_with alloc_zeroed alloc_from upload download copy"),
    ("struct.Device", "get all count is_available"),
    ("struct.Context", "create_stream stream_builder"),
    ("struct.Buffer", "len is_empty byte_len"),
    ("struct.Event", "new"),
    ("struct.Module", "from_ptx"),
    ("struct.Launch", "grid block elements elements_2d dynamic_shared arg"),
    ("type.PinnedBuffer", "new write_combined from_slice zeroed as_slice"),
];

/// Returns a line for each page of `cuda-core` below `folder` that begins with other methods than [`FIRST`].
pub(crate) fn complaints(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (page, first) in FIRST {
        let file = folder.join("cuda_core").join(format!("{page}.html"));
        let text = fs::read_to_string(&file).context("a page of rustdoc")?;
        complaints.extend(complaint(page, &text, first));
    }
    Ok(complaints)
}

fn complaint(page: &str, text: &str, first: &str) -> Option<String> {
    let methods = text.split("<section id=\"method.").skip(1);
    let methods = methods.filter_map(|rest| rest.split('"').next());
    let found: Vec<&str> = methods.take(first.split(' ').count()).collect();
    let found = found.join(" ");
    (found != first).then(|| format!("{page} begins with {found}, not with {first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_is_a_complaint() {
        let text = "<section id=\"impl-A\"><section id=\"method.a\" class=\"m\"></section>\
                    <section id=\"method.b\"></section>";
        assert_eq!(complaint("struct.A", text, "a b"), None);
        let wrong = complaint("struct.A", text, "b");
        assert_eq!(wrong.as_deref(), Some("struct.A begins with a, not with b"));
        assert!(complaint("struct.A", "", "a").is_some());
    }
}
