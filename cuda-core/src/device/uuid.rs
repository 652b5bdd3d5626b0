//! Identifiers of devices as text.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::types::Uuid;

impl FromStr for Uuid {
    type Err = Error;

    /// Parses an identifier with or without a `GPU-` or `MIG-` prefix; dashes may be missing.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let form = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal";
            Error::malformed("Uuid::from_str", text, form)
        };
        let digits =
            text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or(text);
        let mut bytes = [0; 16];
        let mut count = 0;
        for digit in digits.chars().filter(|&c| c != '-') {
            let value = digit.to_digit(16).ok_or_else(refused)? as u8;
            let byte = bytes.get_mut(count / 2).ok_or_else(refused)?;
            *byte = *byte << 4 | value;
            count += 1;
        }
        if count != 2 * bytes.len() {
            return Err(refused());
        }
        Ok(Self::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_uuid() {
        for text in [
            "",
            "GPU-",
            "GPU-5c8bbd1d",
            "5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a71",
            "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0ag",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
