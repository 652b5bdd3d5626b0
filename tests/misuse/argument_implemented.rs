//~ E0277
// Only cuda-core decides which types may be kernel arguments.
use cuda_core::{Argument, Pod};

#[derive(Clone, Copy)]
#[repr(C)]
struct Forged(u64);

#[cfg(misuse)]
impl<'a> Argument<'a> for Forged {}
#[cfg(not(misuse))]
// SAFETY: one `u64`.
unsafe impl Pod for Forged {}

fn is_argument<'a>(_: impl Argument<'a>) {}

fn main() {
    let _ = || is_argument(7u64);
    #[cfg(not(misuse))]
    let _ = || is_argument(Forged(7));
}
