//! Parsing of byte counts as people write them.

/// Parses a number of bytes such as `65536`, `64KiB`, `4 MiB` or `2GiB`.
pub(crate) fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    // Refuses a `+`, which `usize::from_str` accepts.
    let begins = text.starts_with(|first: char| first.is_ascii_digit());
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    let number: usize = number.trim_end().parse().ok().filter(|_| begins)?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_have_a_unit_or_none() {
        let sizes = [("7", 7), ("64KiB", 64 << 10), (" 2 MiB ", 2 << 20), ("2GiB", 2 << 30)];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Some(bytes), "{text:?}");
        }
        for text in ["", "KiB", "-1", "+1", "1.5GiB", "1MB", "99999999999GiB"] {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }
}
