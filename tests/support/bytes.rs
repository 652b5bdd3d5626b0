//! Test patterns, and comparisons that name the first difference.

/// Returns word `number` of the pattern `seed`. It depends on every bit of both, so that neither a shifted
/// copy nor a repeated page compares equal.
fn word(seed: u64, number: usize) -> [u8; 8] {
    // The finaliser of SplitMix64.
    let mut x = seed ^ (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x ^ (x >> 31)).to_le_bytes()
}

/// Fills `bytes` with the pattern `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (number, bytes) in bytes.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&word(seed, number)[..bytes.len()]);
    }
}

/// Returns `len` bytes of the pattern `seed`.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

/// Panics unless `bytes` hold the pattern `seed`, naming the first difference.
///
/// # Panics
/// See above.
#[track_caller]
pub fn assert_pattern(bytes: &[u8], seed: u64) {
    assert_bytes(bytes, &pattern(seed, bytes.len()));
}

/// Panics unless the slices are equal, naming their lengths or the first difference.
///
/// # Panics
/// See above.
#[track_caller]
pub fn assert_bytes(actual: &[u8], expected: &[u8]) {
    if let Some(difference) = difference(actual, expected) {
        panic!("{difference}");
    }
}

fn difference(actual: &[u8], expected: &[u8]) -> Option<String> {
    if actual.len() != expected.len() {
        return Some(format!("{} bytes, expected {}", actual.len(), expected.len()));
    }
    let first = actual.iter().zip(expected).position(|(a, e)| a != e)?;
    let wrong = actual.iter().zip(expected).filter(|(a, e)| a != e).count();
    let end = actual.len().min(first + 8);
    Some(format!(
        "{wrong} of {} bytes differ, the first at offset {first} ({first:#x}): {:02x?}, expected {:02x?}",
        actual.len(),
        &actual[first..end],
        &expected[first..end],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_has_no_short_period_and_depends_on_the_seed() {
        let bytes = pattern(7, 4096);
        for period in [1, 2, 4, 16, 256, 512, 1024, 2048] {
            assert_ne!(bytes[..period], bytes[period..2 * period], "period {period}");
        }
        assert_ne!(bytes, pattern(8, 4096));
    }

    #[test]
    fn a_difference_is_named_by_offset_and_value() {
        let expected = pattern(1, 100);
        let mut actual = expected.clone();
        assert_eq!(difference(&actual, &expected), None);
        actual[42] ^= 0xFF;
        actual[99] ^= 0xFF;
        let message = difference(&actual, &expected).expect("two bytes differ");
        assert!(message.starts_with("2 of 100 bytes differ, the first at offset 42 (0x2a): ["));
        assert_eq!(difference(&actual[..3], &expected).as_deref(), Some("3 bytes, expected 100"));
    }
}
