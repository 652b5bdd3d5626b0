//! Copies that own their host memory: any `Vec` or `Box`, which the copy returns afterwards.

mod shared;

use std::process::ExitCode;

use cuda_core::{Registered, pinned::RegisterFlags};

const LEN: usize = 1 << 20;

fn example() -> shared::Result {
    let device = shared::device()?;
    let stream = device.create_stream()?;
    let mut buffer = stream.alloc::<u32>(LEN)?;

    // The copy owns the vector: during the copy the program can neither write nor free it, even with
    // `mem::forget`.
    let numbers: Vec<u32> = (0..LEN as u32).collect();
    let upload = stream.upload_owned(numbers, &mut buffer)?;
    println!("uploading; done already: {}", upload.is_done()?);
    let numbers = upload.wait()?;
    println!("the vector is back, with {} elements", numbers.len());

    // No wait is needed: the download comes after the upload, into the same vector.
    let download = stream.download_owned(&buffer, numbers)?;
    let numbers = download.wait()?;
    assert!(numbers.iter().zip(0..).all(|(&element, index)| element == index));

    // A copy that is dropped in flight keeps the vector until the copy is done, then frees it.
    drop(stream.upload_owned(vec![7; LEN], &mut buffer));

    // An owner pins memory in place; this suits memory that is copied often.
    let registered = Registered::new(stream.context(), numbers, RegisterFlags::PORTABLE)?;
    stream.upload(&registered, &mut buffer)?; // as from a pinned buffer
    let numbers = registered.into_inner()?; // waits
    println!("registered, uploaded, and back: {} elements", numbers.len());
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
