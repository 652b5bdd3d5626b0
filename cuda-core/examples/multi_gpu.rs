//! Uses all GPUs from one thread: each computes a part, and the first one collects the parts.

mod shared;

use std::process::ExitCode;

/// Elements of one device's share.
const SHARE: usize = 1 << 20;

fn example() -> shared::Result {
    let devices = shared::several()?;
    let home = devices[0].create_stream()?;
    let mut whole = home.alloc::<u32>(devices.len() * SHARE)?;
    for ((number, device), part) in (0..).zip(&devices).zip(whole.chunks_mut(SHARE)?) {
        let stream = device.create_stream()?;
        let mut share = stream.alloc(SHARE)?;
        stream.fill(&mut share, number)?;
        // `home` is another device's stream: it waits for the fill, and the host does not.
        home.copy(&share, part)?;
        // `share` and `stream` are dropped with work in flight; the memory is freed after the copy.
    }

    let back = home.download_vec(&whole)?; // the one wait
    for (number, share) in back.chunks(SHARE).enumerate() {
        assert!(share.iter().all(|&element| element == number as u32));
        let device = devices[number];
        println!("device {number}, {}: {SHARE} elements", device.name()?);
    }
    println!("device 0 has collected {} shares", devices.len());
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
