//! All GPUs as a group: copies the same data to each, a part to each, and passes the parts around.

mod shared;

use std::process::ExitCode;

use cuda_core::DeviceGroup;

/// Elements of one device's share.
const SHARE: usize = 1 << 20;

fn example() -> shared::Result {
    let group = DeviceGroup::new(shared::several()?)?;
    // Without peer access, copies between devices still work, more slowly.
    for (device, peer) in group.enable_all_peers()? {
        println!("{device:?} cannot reach {peer:?}");
    }
    let count = group.len();

    // Copies the same data to each device, with one pass over host memory. Then copies a part to each.
    let weights: Vec<u32> = (0..SHARE as u32).collect();
    let mut copies = group.alloc::<u32>(SHARE)?;
    group.upload_all(&weights, &mut copies)?;
    let batch: Vec<u32> = (0..(count * SHARE) as u32).collect();
    let mut parts = group.alloc_shares::<u32>(batch.len())?;
    group.scatter(&batch, &mut parts)?;

    // Passes each part to the next device until each device has had every part: the steps of a ring.
    let mut next = group.alloc_shares::<u32>(batch.len())?;
    for _ in 0..count {
        for ((stream, part), copy) in group.streams().iter().zip(&parts).zip(&mut copies) {
            stream.copy(part, copy)?; // stands in for a kernel
        }
        group.rotate(&parts, &mut next, 1)?;
        std::mem::swap(&mut parts, &mut next);
    }

    let mut back = vec![0; batch.len()];
    group.gather(&parts, &mut back)?; // the one wait
    assert_eq!(back, batch);
    println!("{} elements were passed around {count} devices", batch.len());

    // Each device holds a block of a matrix's rows; afterwards it holds a block of its columns.
    let mut rows = group.alloc::<u32>(count * count)?;
    for (rank, (stream, block)) in group.streams().iter().zip(&mut rows).enumerate() {
        stream.fill(block, rank as u32)?;
    }
    let mut columns = group.alloc::<u32>(count * count)?;
    group.all_to_all(&rows, &mut columns)?;
    let mut column = vec![0; count * count];
    group.streams()[0].download(&columns[0], &mut column)?;
    assert!((0..count).all(|from| column[from * count] == from as u32));
    println!("{count} blocks of rows became {count} blocks of columns");
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
