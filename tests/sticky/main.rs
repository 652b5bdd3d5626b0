//! Tests that poison, exit or fork their process: each runs in one of its own, under
//! `cargo xtask test` and `cargo xtask test-gpu`.
