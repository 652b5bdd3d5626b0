//! Values that streams write and wait for: in buffers, and as signals.

use std::sync::Arc;
use std::thread;

use cuda_core::managed::ManagedBuffer;
use cuda_core::{
    Allocator, Context, ContextFlags, Device, DeviceBuffer, Error, PinnedBuffer, Result, Signal,
    Stream, StreamValue, WaitValue,
};
use support::{assert_bytes, gpu_test, refusal, stall};

/// Polls until the stream is idle, after the test has ended the stream's wait.
fn drain(stream: &Stream) -> Result<()> {
    while !stream.query()? {
        thread::yield_now();
    }
    Ok(())
}

/// Returns zeros in memory that streams can write values to and wait for, unlike memory of pools.
fn zeros<T: StreamValue>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>> {
    let mut buffer = stream.context().alloc(len)?;
    stream.fill_bytes(&mut buffer, 0)?;
    Ok(buffer)
}

fn written<T: StreamValue + Default + std::fmt::Debug>(value: T) -> Result<()> {
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = zeros::<T>(&stream, 3)?;
    stream.write_value(buffer.slice_mut(1..2)?, value)?;
    let mut back = [value; 3];
    stream.download(&buffer, &mut back)?;
    assert_eq!(back, [T::default(), value, T::default()]);
    // A value that is already there ends the wait at once.
    stream.wait_value(buffer.slice(1..2)?, WaitValue::Eq(value))?;
    stream.synchronize()
}

gpu_test! {
    needs 1;
    fn values_of_both_widths() -> Result<()> {
        written(0x8765_4321_u32)?;
        written(0x8765_4321_0FED_CBA9_u64)
    }
}

gpu_test! {
    needs 1;
    fn values_wait_for_other_streams_as_fills_do() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (one, two) = (context.create_stream()?, context.create_stream()?);
        let mut buffer = zeros::<u32>(&one, 1)?;
        two.write_value(&mut buffer, 5)?;
        one.wait_value(&buffer, WaitValue::Eq(5))?;
        two.fill(&mut buffer, 6)?;
        one.wait_value(&buffer, WaitValue::Geq(6))?;
        one.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn values_by_every_condition() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let holds = [
            (7, WaitValue::Geq(7)),
            (7, WaitValue::Geq(6)),
            // The comparison is cyclic: 3 is five steps after 2³² - 2.
            (3, WaitValue::Geq(u32::MAX - 1)),
            (7, WaitValue::Eq(7)),
            (0b0110, WaitValue::And(0b1100)),
            (0, WaitValue::Nor(u32::MAX - 1)),
        ];
        for (value, until) in holds {
            let signal = Signal::new(&device.context()?, value)?;
            stream.wait_signal(&signal, until)?;
            stream.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn values_that_do_not_hold_hold_up() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let held = [
            (7, WaitValue::Geq(8), 8),
            (u32::MAX - 1, WaitValue::Geq(3), 3),
            (7, WaitValue::Eq(8), 8),
            (0b0011, WaitValue::And(0b1100), 0b1000),
            (1, WaitValue::Nor(u32::MAX - 1), 0),
        ];
        for (value, until, then) in held {
            let signal = Signal::new(&device.context()?, value)?;
            stream.wait_signal(&signal, until)?;
            for _ in 0..5 {
                assert!(!stream.query()?, "{until:?} of {value}");
            }
            signal.set(then);
            drain(&stream)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn signals_between_host_and_stream() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let (go, done) = (Signal::new(&device.context()?, 0u32)?, Signal::new(&device.context()?, 0u64)?);
        for round in 1..=3 {
            stream.wait_signal(&go, WaitValue::Geq(round))?;
            stream.write_signal(&done, u64::from(round) << 33)?;
            assert!(!stream.query()?);
            assert_eq!(done.get(), u64::from(round - 1) << 33);
            go.set(round);
            drain(&stream)?;
            assert_eq!(done.get(), u64::from(round) << 33);
        }
        assert_eq!(go.get(), 3);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn signals_between_streams() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let signal = Signal::new(&device.context()?, 0u32)?;
        one.wait_signal(&signal, WaitValue::Eq(1))?;
        assert!(!one.query()?);
        two.write_signal(&signal, 1)?;
        drain(&two)?;
        drain(&one)
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn signals_between_devices() -> Result<()> {
        let (first, second) = (Device::get(0)?, Device::get(1)?);
        let (one, two) = (first.create_stream()?, second.create_stream()?);
        let signal = Signal::new(&first.context()?, 0u32)?;
        two.wait_signal(&signal, WaitValue::Eq(1))?;
        assert!(!two.query()?);
        one.write_signal(&signal, 1)?;
        drain(&one)?;
        drain(&two)
    }
}

gpu_test! {
    needs 1;
    fn signals_in_host_functions() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let signal = Arc::new(Signal::new(&device.context()?, 0u32)?);
        let inside = signal.clone();
        one.launch_host_func(move || inside.set(inside.get() + 1))?;
        two.wait_signal(&signal, WaitValue::Eq(1))?;
        drain(&one)?;
        drain(&two)?;
        assert_eq!(format!("{signal:?}"), "Signal(1)");
        // A host function may also drop the last reference.
        one.launch_host_func(move || drop(signal))?;
        one.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn signals_on_every_kind_of_stream() -> Result<()> {
        let device = Device::get(0)?;
        let created = Context::new(device, ContextFlags::default())?;
        let signal = Signal::new(&device.context()?, 0u32)?;
        for context in [device.context()?, created] {
            let streams = [context.create_stream()?, context.default_stream()?];
            for stream in &streams {
                signal.set(0);
                stream.wait_signal(&signal, WaitValue::Eq(1))?;
                stream.write_signal(&signal, 2)?;
                assert!(!stream.query()?);
                signal.set(1);
                drain(stream)?;
                assert_eq!(signal.get(), 2);
            }
            let own = context.per_thread_stream()?;
            own.wait_signal(&signal, WaitValue::Eq(2))?;
            own.write_signal(&signal, 3)?;
            own.synchronize()?;
            assert_eq!(signal.get(), 3);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_what_came_before_a_wait_on_a_value_does_not_wait_for_it() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let (stream, other) = (device.create_stream()?, device.create_stream()?);
        let mut buffer = stream.alloc::<u8>(1000)?;
        let mut copy = other.alloc::<u8>(1000)?;
        let mut host = PinnedBuffer::from_slice(&context, &[41; 1000])?;
        let mut back = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        // Makes the calls beforehand that would wait after the stall.
        other.copy(&buffer, &mut copy)?;
        other.download(&copy, &mut back)?;
        other.synchronize()?;
        stream.synchronize()?;

        let signal = Signal::new(&device.context()?, 0u32)?;
        stream.upload(&host, &mut buffer)?;
        stream.wait_signal(&signal, WaitValue::Eq(1))?;
        stream.launch_host_func(|| ())?;
        // The host, and another stream, wait only for the upload.
        host.as_mut_slice()?.fill(0);
        other.copy(&buffer, &mut copy)?;
        other.download(&copy, &mut back)?;
        assert_bytes(back.as_slice()?, &[41; 1000]);
        assert!(!stream.query()?, "the stream still waits");
        signal.set(1);
        drain(&stream)
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_what_came_before_a_wait_on_an_element_does_not_wait_for_it() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let stream = device.create_stream()?;
        let mut buffer = stream.alloc::<u8>(1000)?;
        let element = zeros::<u32>(&stream, 1)?;
        let mut host = PinnedBuffer::from_slice(&context, &[41; 1000])?;
        stream.synchronize()?;
        stream.upload(&host, &mut buffer)?;
        let wait = stall(stream.as_raw());
        drop(wait);
        stream.wait_value(&element, WaitValue::Eq(0))?;
        let held = stall(stream.as_raw());
        host.as_mut_slice()?.fill(0);
        assert!(!stream.query()?);
        held.release();
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_a_signal_dropped_while_a_stream_uses_it() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let signal = Signal::new(&device.context()?, 0u32)?;
        let address = signal.as_raw();
        let stall = stall(two.as_raw());
        two.write_signal(&signal, 1)?;
        one.wait_signal(&signal, WaitValue::Eq(1))?;
        drop(signal);
        // No other signal gets the slot: its 0 would stall the stream, and a 1 would let it continue.
        let others: Vec<_> = (0..100).map(|_| Signal::new(&device.context()?, 0u32)).collect::<Result<_>>()?;
        assert!(others.iter().all(|other| other.as_raw() != address));
        assert!(!one.query()?);
        stall.release();
        drain(&two)?;
        drain(&one)?;
        assert!(others.iter().all(|other| other.get() == 0));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn waits_that_cannot_end_are_refused() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let (narrow, wide) = (Signal::new(&device.context()?, 0u32)?, Signal::new(&device.context()?, 0u64)?);
        let element = zeros::<u32>(&stream, 1)?;
        let refused = [
            stream.wait_signal(&narrow, WaitValue::And(0)),
            stream.wait_signal(&narrow, WaitValue::Nor(u32::MAX)),
            stream.wait_signal(&wide, WaitValue::And(0)),
            stream.wait_signal(&wide, WaitValue::Nor(u64::MAX)),
            stream.wait_value(&element, WaitValue::And(0)),
        ];
        for result in refused {
            assert!(refusal(result).contains("never end"));
        }
        stream.synchronize()
    }
}

gpu_test! {
    needs 2;
    fn values_of_the_wrong_shape_or_device_are_refused() -> Result<()> {
        let (first, second) = (Device::get(0)?, Device::get(1)?);
        let (stream, other) = (first.create_stream()?, second.create_stream()?);
        let mut two = zeros::<u32>(&stream, 2)?;
        let mut none = stream.alloc::<u32>(0)?;
        let refused = [
            stream.write_value(&mut two, 1),
            stream.write_value(&mut none, 1),
            stream.wait_value(&two, WaitValue::Eq(1)),
            stream.wait_value(&none, WaitValue::Eq(1)),
        ];
        for (result, len) in refused.into_iter().zip([2, 0, 2, 0]) {
            assert!(refusal(result).contains(&format!("{len} elements, and is to have one")));
        }
        let refused = [
            other.write_value(two.slice_mut(..1)?, 1),
            other.wait_value(two.slice(..1)?, WaitValue::Eq(1)),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::WrongDevice(_))), "{result:?}");
        }
        let mut cached = stream.alloc_with::<u32>(&Allocator::cache(), 1)?;
        stream.write_value(&mut cached, 1)?;
        stream.wait_value(&cached, WaitValue::Eq(1))?;
        assert_eq!(stream.download_vec(&cached)?, [1]);
        let mut pooled = stream.alloc_with::<u32>(&Allocator::driver_pool(), 1)?;
        let refused = [
            stream.write_value(&mut pooled, 1),
            stream.wait_value(&pooled, WaitValue::Eq(0)),
        ];
        for result in refused {
            assert!(refusal(result).contains("the driver's pools"));
        }
        // On memory of another context, the calls would use another address space, if they worked at all.
        let created = Context::new(first, ContextFlags::default())?;
        let mut elsewhere = created.alloc::<u32>(1)?;
        let refused = [
            stream.write_value(&mut elsewhere, 1),
            stream.wait_value(&elsewhere, WaitValue::Eq(0)),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::WrongContext(_))), "{result:?}");
        }
        let mut managed = ManagedBuffer::<u32>::new(stream.context(), 1)?;
        let refused = [
            stream.write_value(managed.slice_mut(..)?, 1),
            stream.wait_value(managed.slice(..)?, WaitValue::Eq(0)),
        ];
        for result in refused {
            assert!(refusal(result).contains("managed memory"));
        }
        Ok(())
    }
}
