//~ E0502
// The host may not look at managed memory while a device has an exclusive view.
use cuda_core::{Result, Stream, managed::ManagedBuffer};

fn alias(stream: &Stream, values: &mut ManagedBuffer<u32>) -> Result<u32> {
    let mut view = values.as_view_mut();
    #[cfg(not(misuse))]
    stream.fill(&mut view, 1)?;
    let seen = values.as_slice()?[0];
    #[cfg(misuse)]
    stream.fill(&mut view, 1)?;
    Ok(seen)
}

fn main() {}
