//~ E0639
// Later versions may have more options.
use cuda_core::staging::StagingOptions;

fn four_threads() -> StagingOptions {
    #[cfg(misuse)]
    return StagingOptions {
        threads: 4,
        chunk: 1 << 20,
    };
    #[cfg(not(misuse))]
    StagingOptions::new(4, 1 << 20)
}

fn main() {}
