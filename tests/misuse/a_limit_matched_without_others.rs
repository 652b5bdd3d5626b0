//~ E0004
// Later versions may limit a pool in another way.
use cuda_core::pools::PoolLimit;

fn bytes(limit: PoolLimit) -> Option<usize> {
    match limit {
        PoolLimit::Bytes(bytes) => Some(bytes),
        #[cfg(misuse)]
        PoolLimit::None | PoolLimit::Fraction(_) => None,
        #[cfg(not(misuse))]
        _ => None,
    }
}

fn main() {}
