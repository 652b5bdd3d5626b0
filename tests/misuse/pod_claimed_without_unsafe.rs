//~ E0200
// The compiler cannot check the claim that every bit pattern is valid.
use cuda_core::Pod;

#[derive(Clone, Copy)]
#[repr(C)]
struct Pair(u32, u32);

#[cfg(misuse)]
impl Pod for Pair {}

#[cfg(not(misuse))]
// SAFETY: two integers and no padding.
unsafe impl Pod for Pair {}

fn main() {}
