//! Awaits the device with any executor: here a minimal one, on one thread.

mod shared;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cuda_core::{Device, PinnedBuffer, Result};

type Task = Pin<Box<dyn Future<Output = Result<u32>>>>;

/// Wakes the polling thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls all tasks on this thread, which sleeps while the device works.
fn run_all(mut tasks: Vec<Task>) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut polls = 0;
    while !tasks.is_empty() {
        let (mut pending, mut outcome) = (Vec::new(), Ok(()));
        for mut task in tasks {
            polls += 1;
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => pending.push(task),
                Poll::Ready(Ok(number)) => println!("task {number} is done"),
                Poll::Ready(Err(error)) => outcome = Err(error),
            }
        }
        outcome?;
        tasks = pending;
        if !tasks.is_empty() {
            thread::park();
        }
    }
    println!("polled {polls} times in all");
    Ok(())
}

/// While one task awaits the device, the thread runs the others.
async fn round_trip(device: Device, number: u32) -> Result<u32> {
    let stream = device.create_stream()?;
    let mut pinned = PinnedBuffer::zeroed(stream.context(), 1 << 20)?;
    let mut buffer = stream.alloc::<u32>(1 << 20)?;
    stream.fill(&mut buffer, number)?;
    stream.download(&buffer, &mut pinned)?;
    pinned.ready().await?; // waits for the download, and for what precedes it
    let elements = pinned.as_slice()?; // does not have to wait
    assert!(elements.iter().all(|&element| element == number));
    let copy = stream.upload_owned(vec![number; 1 << 20], &mut buffer);
    let vector = copy?.await?;
    stream.fill(&mut buffer, vector[0])?;
    stream.ready().await?; // waits for all work enqueued on the stream so far
    Ok(number)
}

fn example() -> shared::Result {
    let device = shared::device()?;
    let tasks = (1..=4).map(|number| Box::pin(round_trip(device, number)) as Task);
    Ok(run_all(tasks.collect())?)
}

fn main() -> ExitCode {
    shared::run(example)
}
