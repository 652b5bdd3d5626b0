//~ E0277
// A registration must own the memory: a borrow could be forgotten while a device writes to it.
use cuda_core::{Context, Registered, pinned::RegisterFlags};

fn register(context: &Context, mut local: Vec<u32>) {
    #[cfg(misuse)]
    let host = local.as_mut_slice();
    #[cfg(not(misuse))]
    let host = std::mem::take(&mut local);
    let _ = Registered::new(context, host, RegisterFlags::PORTABLE).is_ok();
    drop(local);
}

fn main() {}
