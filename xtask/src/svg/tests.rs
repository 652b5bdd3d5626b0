//! A check of pictures, and a test of the check.

use super::*;

/// Checks that tags nest, attributes are quoted, and no `<` or `&` is stray.
pub(crate) fn check(svg: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find(['<', '&', '>']) {
        let from = &rest[at..];
        if let Some(entity) = from.strip_prefix('&') {
            let known = ["amp;", "lt;", "gt;", "quot;"];
            if !known.iter().any(|name| entity.starts_with(name)) {
                return Err(format!("stray &: {from:.20}"));
            }
            rest = entity;
            continue;
        }
        let end = from.find('>').ok_or("a tag without an end")?;
        let tag = from.get(1..end).ok_or("stray >")?;
        rest = &from[end + 1..];
        if tag.contains('<') || tag.matches('"').count() % 2 != 0 {
            return Err(format!("broken tag: {tag}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap_or_default());
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open: {open:?}")) }
}

#[test]
fn a_picture_is_well_formed_and_the_check_detects_each_error() {
    let mut svg = Svg::default();
    svg.group("<tip>", |svg| {
        svg.text(1.0, 2.0, "quiet", "a & b");
        svg.shape(r#"rect x="1""#);
    });
    check(&svg.page(10.0, 10.0, "a < b")).unwrap();
    for broken in ["<a><b></a></b>", "<a>x & y</a>", "<a>", "<a b=\"></a>", "<a>1 > 0</a>"] {
        assert!(check(broken).is_err(), "{broken}");
    }
}
