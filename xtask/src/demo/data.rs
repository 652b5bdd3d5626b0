//! Sizes in human-readable form, and a byte pattern that is cheap to make and unlikely to occur by
//! accident.

/// Parses "4096", "64KiB", "256MiB" or "1GiB".
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        other => return Err(format!("unknown unit {other:?}; use B, KiB, MiB or GiB")),
    };
    let number: usize = digits.parse().map_err(|_| "not a number".to_owned())?;
    match number.checked_mul(unit) {
        Some(0) => Err("a transfer of nothing shows nothing".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("too large".to_owned()),
    }
}

/// Formats a size in the largest unit without a fraction.
pub(crate) fn show_size(bytes: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes % unit == 0 {
            return format!("{} {name}", bytes / unit);
        }
    }
    let plural = if bytes == 1 { "" } else { "s" };
    format!("{bytes} byte{plural}")
}

/// The seed of data that is moved while rates are measured; it differs from the seeds of all verified data.
pub(crate) const MEASURED: u64 = 0;

/// The seed of the data that a device verifies.
pub(crate) fn seed_of(ordinal: u32) -> u64 {
    u64::from(ordinal) + 1
}

/// The seed of the data that one device sends to another; it differs from the seeds of devices and other
/// pairs.
pub(crate) fn seed_of_pair(from: u32, to: u32) -> u64 {
    seed_of(from) << 32 | seed_of(to)
}

/// Fills `bytes` with a sequence that depends on position and `seed`.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    for (chunk, word) in bytes.chunks_mut(8).zip(words(seed)) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Whether `bytes` are the sequence that [`fill`] makes from `seed`.
pub(crate) fn is_filled(bytes: &[u8], seed: u64) -> bool {
    bytes.chunks(8).zip(words(seed)).all(|(chunk, word)| *chunk == word[..chunk.len()])
}

/// Steps of splitmix64: neighbouring words differ in about half of their bits.
fn words(seed: u64) -> impl Iterator<Item = [u8; 8]> {
    (0..).map(move |index: u64| {
        let mut z = (index ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)).to_le_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("0").is_err());
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("99999999999999GiB").is_err());
    }

    #[test]
    fn sizes_are_said_whole() {
        assert_eq!(show_size(1), "1 byte");
        assert_eq!(show_size(1025), "1025 bytes");
        assert_eq!(show_size(4 << 20), "4 MiB");
        assert_eq!(show_size(1 << 30), "1 GiB");
    }

    #[test]
    fn a_single_wrong_byte_is_found() {
        let mut bytes = vec![0; 1003];
        fill(&mut bytes, 7);
        assert!(is_filled(&bytes, 7));
        assert!(!is_filled(&bytes, 8));
        bytes[1002] ^= 1;
        assert!(!is_filled(&bytes, 7));
    }
}
