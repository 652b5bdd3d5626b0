//~ E0638
// Later versions may say more about an error.
use cuda_core::Error;

fn what_captures(error: &Error) -> Option<&'static str> {
    match error {
        #[cfg(misuse)]
        Error::Capturing { op } => Some(op),
        #[cfg(not(misuse))]
        Error::Capturing { op, .. } => Some(op),
        _ => None,
    }
}

fn main() {}
