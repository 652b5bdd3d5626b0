//! S41: a thread holds up a stream while another thread is about to record an event there.

use std::sync::mpsc;
use std::thread;

use cuda_core::{Event, EventFlags, PinnedBuffer, Result, Stream};
use support::{block_on, blocks};

use super::{clean, device, pinned, primary, within};

/// Waits by `wait` for a download. While the wait creates its event, this thread does what `before` says, and
/// then holds up the stream by a host function that returns when the wait has ended.
fn overtaken(before: fn(&Stream) -> Result<()>, wait: fn(&PinnedBuffer<u32>) -> Result<()>) {
    clean(|session| {
        let stream = device().create_stream()?;
        let buffer = stream.upload_new(&[7; 64])?;
        let mut host = pinned(&[0; 64])?;
        stream.synchronize()?;
        stream.download(&buffer, &mut host)?;
        let (end, ended) = mpsc::channel();
        let held = session.hold("cuEventCreate");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let waited = wait(&host);
                end.send(()).expect("the function receives it");
                waited
            });
            held.await_call();
            before(&stream)?;
            stream.launch_host_func(move || ended.recv().expect("it is sent"))?;
            drop(held);
            waiting.join().expect("no panic")
        })?;
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

fn nothing(_: &Stream) -> Result<()> {
    Ok(())
}

fn by_the_host(host: &PinnedBuffer<u32>) -> Result<()> {
    host.as_slice().map(drop)
}

fn by_a_future(host: &PinnedBuffer<u32>) -> Result<()> {
    block_on(host.ready())
}

#[test]
fn s41_a_wait_of_the_host_that_a_host_function_overtakes() {
    overtaken(nothing, by_the_host);
}

#[test]
fn s41_a_future_that_a_host_function_overtakes() {
    overtaken(nothing, by_a_future);
}

/// The point has completed when the stream is held up, so that nothing covers it before the host function.
#[test]
fn s41_a_wait_that_another_wait_and_a_host_function_overtake() {
    overtaken(Stream::synchronize, by_the_host);
    overtaken(Stream::synchronize, by_a_future);
}

/// A stream that waits for the event makes a checkpoint first, so that its earlier work is not covered late.
#[test]
fn s41_an_event_that_is_recorded_behind_a_host_function_of_another_thread() {
    clean(|session| {
        let [stream, other] = [device().create_stream()?, device().create_stream()?];
        let event = Event::new(stream.context(), EventFlags::DISABLE_TIMING)?;
        let buffer = other.upload_new(&[7; 64])?;
        let mut host = pinned(&[0; 64])?;
        other.download(&buffer, &mut host)?;
        let (end, ended) = mpsc::channel();
        let held = session.hold("cuEventRecord");
        thread::scope(|scope| {
            let recording = scope.spawn(|| event.record(&stream));
            held.await_call();
            stream.launch_host_func(move || ended.recv().expect("it is sent"))?;
            drop(held);
            recording.join().expect("no panic")
        })?;
        other.wait_event(&event)?;
        let downloaded = host.as_slice().map(<[u32]>::to_vec);
        end.send(()).expect("the function receives it");
        assert_eq!(downloaded?, [7; 64]);
        Ok(())
    });
}

/// A new handle of the legacy stream stands for the same stream as the one that another thread is dropping:
/// what holds up the stream comes after a checkpoint of the earlier work.
#[test]
fn s41_a_handle_of_the_legacy_stream_that_is_dropped_while_a_new_one_holds_up_the_stream() {
    clean(|session| {
        let legacy = primary().default_stream()?;
        let mut buffer = device().create_stream()?.alloc::<u32>(64)?;
        legacy.fill(&mut buffer, 7)?;
        let held = session.hold("cuEventRecord");
        thread::scope(|scope| {
            let dropping = scope.spawn(|| drop(legacy));
            held.await_call();
            let legacy = primary().default_stream()?;
            let release = blocks(&legacy)?;
            drop(held);
            dropping.join().expect("no panic");
            within(|| buffer.synchronize().expect("its work is done"));
            drop(release);
            legacy.synchronize()
        })
    });
}
