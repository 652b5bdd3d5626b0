//! All GPUs from one thread: each makes its share, and the shares meet on the first; then all of them
//! at once, as a group.

mod shared;

use std::process::ExitCode;

use cuda_core::{Device, DeviceGroup};

/// Elements of one device's share.
const SHARE: usize = 1 << 20;

fn one_by_one(devices: &[Device]) -> shared::Result {
    let home = devices[0].create_stream()?;
    let mut whole = home.alloc::<u32>(devices.len() * SHARE)?;
    for (number, device) in devices.iter().enumerate() {
        let stream = device.create_stream()?;
        let mut share = stream.alloc::<u32>(SHARE)?;
        stream.fill(&mut share, number as u32)?;
        // `home` is another device's stream: it waits for the fill, and nobody else does.
        let part = whole.slice_mut(number * SHARE..(number + 1) * SHARE)?;
        home.copy(&share, part)?;
        // `share` and `stream` are dropped with work in flight; the memory is freed behind the copy.
    }

    let mut back = vec![0; whole.len()];
    home.download_to(&whole, &mut back)?; // the one wait
    for (number, share) in back.chunks(SHARE).enumerate() {
        assert!(share.iter().all(|&element| element == number as u32));
        let device = devices[number];
        println!("device {number}, {}: {SHARE} elements", device.name()?);
    }
    println!("{} shares met on device 0", devices.len());
    Ok(())
}

fn all_at_once(group: &DeviceGroup) -> shared::Result {
    let count = group.len();
    // The same to everybody, with one pass over the host's memory; and to everybody a part.
    let weights: Vec<u32> = (0..SHARE as u32).collect();
    let mut copies = group.alloc::<u32>(SHARE)?;
    group.upload_all_from(&weights, &mut copies)?;
    let batch: Vec<u32> = (0..(count * SHARE) as u32).collect();
    let mut parts = group.alloc_shares::<u32>(batch.len())?;
    group.scatter_from(&batch, &mut parts)?;

    // Each to the next one, until everybody has had every part: the steps of a ring.
    let mut next = group.alloc_shares::<u32>(batch.len())?;
    for _ in 0..count {
        for ((stream, part), copy) in group.streams().iter().zip(&parts).zip(&mut copies) {
            stream.copy(part, copy)?; // stands for a kernel
        }
        group.rotate(&parts, &mut next, 1)?;
        std::mem::swap(&mut parts, &mut next);
    }

    let mut back = vec![0; batch.len()];
    group.gather_to(&parts, &mut back)?; // the one wait
    assert_eq!(back, batch);
    println!("{} elements went round {count} devices", batch.len());

    // The rows of a matrix, a block of them on each device, become its columns.
    let mut rows = group.alloc::<u32>(count * count)?;
    for (rank, (stream, block)) in group.streams().iter().zip(&mut rows).enumerate() {
        stream.fill(block, rank as u32)?;
    }
    let mut columns = group.alloc::<u32>(count * count)?;
    group.all_to_all(&rows, &mut columns)?;
    let mut column = vec![0; count * count];
    group.streams()[0].download_to(&columns[0], &mut column)?;
    assert!((0..count).all(|from| column[from * count] == from as u32));
    println!("{count} blocks of rows became {count} blocks of columns");
    Ok(())
}

fn example() -> shared::Result {
    let devices = shared::several()?;
    let group = DeviceGroup::new(devices.iter().copied())?;
    // Copies between devices work without it, more slowly.
    for (device, peer) in group.enable_all_peers()?.unreachable() {
        println!("{device:?} cannot reach {peer:?}");
    }
    one_by_one(&devices)?;
    all_at_once(&group)
}

fn main() -> ExitCode {
    shared::run(example)
}
