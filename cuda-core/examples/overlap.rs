//! Uploads, processes and downloads many chunks. Each of the three runs on a stream of its own, so that they
//! overlap.

mod shared;

use std::process::ExitCode;
use std::time::Instant;

use cuda_core::{PinnedBuffer, Stream};

const CHUNKS: usize = 16;

/// The number of elements of a chunk.
const LEN: usize = 1 << 20;

/// Sends `input` through the device, chunk by chunk.
fn pipeline(
    [up, compute, down]: [&Stream; 3],
    input: &PinnedBuffer<f32>,
    output: &mut PinnedBuffer<f32>,
) -> cuda_core::Result<()> {
    for (input, output) in input.chunks(LEN)?.zip(output.chunks_mut(LEN)?) {
        let mut source = up.alloc::<f32>(LEN)?;
        up.upload(input, &mut source)?;
        // A wait for this upload covers the work up to here, not later chunks.
        up.checkpoint()?;
        // Stands in for a kernel. It waits for the upload because it uses `source`.
        let result = compute.copy_new(&source)?;
        compute.checkpoint()?;
        down.download(&result, output)?;
    }
    Ok(())
}

fn example() -> shared::Result {
    let device = shared::device()?;
    let context = device.context()?;
    let mut input = PinnedBuffer::new(&context, CHUNKS * LEN)?;
    for (index, element) in input.as_mut_slice()?.iter_mut().enumerate() {
        *element = index as f32;
    }
    let mut output = PinnedBuffer::zeroed(&context, CHUNKS * LEN)?;
    let streams = [device.create_stream()?, device.create_stream()?, device.create_stream()?];
    let [up, compute, down] = &streams;

    for (how, streams) in
        [("warming up", [up; 3]), ("one stream", [up; 3]), ("three streams", [up, compute, down])]
    {
        output.as_mut_slice()?.fill(0.0);
        let began = Instant::now();
        pipeline(streams, &input, &mut output)?;
        let enqueued = began.elapsed();
        let same = output.as_slice()? == input.as_slice()?; // waits
        assert!(same, "{how}");
        println!("{how}: enqueued in {enqueued:.1?}, done and compared in {:.1?}", began.elapsed());
    }
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
