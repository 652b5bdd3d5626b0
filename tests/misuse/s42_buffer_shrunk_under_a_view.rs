//~ E0502
// The memory of a view stays mapped for as long as the view lives.
use cuda_core::{Result, virtual_memory::VirtualBuffer};

fn shrink(buffer: &mut VirtualBuffer<u32>) -> Result<usize> {
    #[cfg(not(misuse))]
    buffer.shrink_to(0)?;
    let view = buffer.as_view();
    #[cfg(misuse)]
    buffer.shrink_to(0)?;
    Ok(view.len())
}

fn main() {
    let _: fn(&mut VirtualBuffer<u32>) -> Result<usize> = shrink;
}
