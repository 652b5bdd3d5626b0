//~ E0277
//~ says cannot be given as `SliceMut<
//~ says upload(&[1u32, 2, 3], &mut buffer)
//~ says `&mut memory` to be written
use cuda_core::{Result, Stream};

fn write(stream: &Stream) -> Result<()> {
    #[allow(unused_mut, reason = "the misuse does not need it")]
    let mut buffer = stream.alloc::<u32>(3)?;
    #[cfg(misuse)]
    return stream.upload(&[1u32, 2, 3], &buffer);
    #[cfg(not(misuse))]
    stream.upload(&[1u32, 2, 3], &mut buffer)
}

fn main() {}
