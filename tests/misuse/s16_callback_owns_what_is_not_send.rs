//~ E0277
use std::rc::Rc;
use std::sync::Arc;

use cuda_core::{Result, Stream};

#[cfg(misuse)]
type Counted = Rc<u32>;
#[cfg(not(misuse))]
type Counted = Arc<u32>;

fn hold(stream: &Stream, value: Counted) -> Result<()> {
    stream.launch_host_func(move || drop(value))
}

fn main() {}
