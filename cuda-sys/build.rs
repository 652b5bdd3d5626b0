//! Chooses the bindings. (Placeholder until the toolkit search lands.)
fn main() {}
