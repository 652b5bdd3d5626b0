//! Guards, creation, and the additional calls of a default stream.

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, PinnedBuffer};

use super::*;

#[test]
fn guard_where_nothing_is_current_costs_5() {
    Counted::run(|driver| {
        let device = Device::get(0)?;
        driver.expect([GET, SET, GET, SET, GET], || device.enter()?.restore())?;
        driver.expect([GET, SET, GET, SET, GET], || device.enter().map(drop))
    });
}

#[test]
fn guard_on_what_is_current_costs_2() {
    Counted::run(|driver| {
        let device = Device::get(0)?;
        let _outer = device.enter()?;
        driver.expect([GET; 2], || device.enter()?.restore())?;
        driver.expect([GET; 2], || device.enter().map(drop))
    });
}

#[test]
fn guard_on_another_context_costs_4() {
    Counted::run(|driver| {
        let _outer = Device::get(0)?.enter()?;
        let other = Device::get(1)?;
        driver.expect([GET, SET, GET, SET], || other.enter()?.restore())?;
        // A second context of the same device is a different context, too.
        let created = Context::new(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
        driver.expect([GET, SET, GET, SET], || created.enter()?.restore())
    });
}

#[test]
fn creation_costs_1_and_3_for_its_context() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let create = || Event::new(&context, EventFlags::DEFAULT);
        let event = driver.expect(entered(["cuEventCreate"]), create)?;
        driver.expect(["cuEventDestroy_v2"], || event.close())?;
        let stream =
            driver.expect(entered(["cuStreamCreateWithPriority"]), || context.create_stream())?;
        driver.expect(["cuStreamDestroy_v2"], || drop(stream));
        let pinned = driver
            .expect(entered(relaxed("cuMemHostAlloc")), || PinnedBuffer::<u8>::new(&context, 8))?;
        driver.expect(relaxed("cuMemFreeHost"), || pinned.close())?;

        let _guard = context.enter()?;
        let create = || Event::new(&context, EventFlags::DISABLE_TIMING);
        let at_home = [GET, "cuEventCreate"];
        driver.expect(at_home, create).map(drop)
    });
}

#[test]
fn context_is_created_with_2_calls_and_destroyed_after_a_wait() {
    Counted::run(|driver| {
        let device = Device::get(0)?;
        let create = || Context::new(device, ContextFlags::SCHED_AUTO);
        let context = driver.expect(["cuCtxCreate_v2", "cuCtxPopCurrent_v2"], create)?;
        let destroy =
            [GET, SET, EXCHANGE, "cuCtxSynchronize", EXCHANGE, SET, GET, "cuCtxDestroy_v2"];
        driver.expect(destroy, || drop(context));
        Ok(())
    });
}

#[test]
fn event_operations_cost_1_each_and_waits_are_relaxed() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let stream = context.create_stream()?;
        let (start, end) = (
            Event::new(&context, EventFlags::DEFAULT)?,
            Event::new(&context, EventFlags::DEFAULT)?,
        );
        driver.expect([RECORD], || start.record(&stream))?;
        driver.expect([RECORD], || end.record(&stream))?;
        driver.expect([WAIT], || stream.wait_event(&start))?;
        driver.expect(relaxed("cuEventQuery"), || end.query())?;
        driver.expect(relaxed("cuEventSynchronize"), || end.synchronize())?;
        driver.expect(relaxed("cuStreamQuery"), || stream.query())?;
        driver.expect(relaxed(SYNC), || stream.synchronize())?;
        let mark = driver.session.mark();
        end.elapsed_since(&start)?;
        let names = driver.session.names_since(mark);
        assert!(names.len() == 3 && names[1].starts_with("cuEventElapsedTime"), "{names:?}");
        // A program that asks until the time is known makes each query once per request.
        let stall = support::stall(stream.as_raw());
        end.record(&stream)?;
        let mark = driver.session.mark();
        let error = end.elapsed_since(&start).expect_err("the stream is stalled");
        let names = driver.session.names_since(mark);
        assert!(error.is_not_ready() && names.len() == 3, "{error}, {names:?}");
        stall.release();
        Ok(())
    });
}

#[test]
fn stack_operations_cost_what_they_say() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let mark = driver.session.mark();
        context.push()?;
        assert_eq!(driver.session.names_since(mark), ["cuCtxPushCurrent_v2"]);
        let mark = driver.session.mark();
        Context::pop()?;
        assert_eq!(driver.session.names_since(mark), [GET, "cuCtxPopCurrent_v2"]);

        let _outer = Device::get(1)?.enter()?;
        let mark = driver.session.mark();
        context.set_current()?;
        assert_eq!(driver.session.names_since(mark), [GET, SET]);
        let mark = driver.session.mark();
        context.set_current()?;
        assert_eq!(driver.session.names_since(mark), [GET]);
        Ok(())
    });
}

#[test]
fn default_stream_costs_its_context_and_a_question_on_top() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let stream = context.default_stream()?;
        let mut buffer =
            driver.expect(entered([ASK, EXCHANGE, ALLOC, EXCHANGE]), || stream.alloc::<u32>(16))?;
        let host = PinnedBuffer::from_slice(&context, &[7u32; 16])?;
        driver.expect(entered([ASK, UPLOAD]), || stream.upload(&host, &mut buffer))?;
        driver.expect(entered([ASK, "cuMemsetD32Async"]), || stream.fill(&mut buffer, 3))?;
        let wide = [ASK, "cuMemsetD2D32Async", "cuMemsetD2D32Async"];
        driver.expect(entered(wide), || stream.fill(buffer.as_view_mut().cast::<u64>()?, 3))?;
        driver.expect(entered([ASK, EXCHANGE, SYNC, EXCHANGE]), || stream.synchronize())?;
        driver.expect(entered([ASK, EXCHANGE, FREE, EXCHANGE]), || drop(buffer));
        let _guard = context.enter()?;
        let at_home = [GET, ASK, EXCHANGE, ALLOC, EXCHANGE];
        driver.expect(at_home, || stream.alloc::<u32>(16)).map(drop)
    });
}

#[test]
fn per_thread_stream_costs_its_context_a_question_and_a_record_on_top() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let home = context.create_stream()?;
        let mut buffer = home.alloc::<u32>(16)?;
        home.synchronize()?;
        let stream = context.per_thread_stream()?;
        // The first record creates an event, and finds the context current.
        let first = entered([ASK, "cuMemsetD32Async", GET, "cuEventCreate", RECORD]);
        driver.expect(first, || stream.fill(&mut buffer, 3))?;
        stream.synchronize()?;
        driver.expect(entered([ASK, "cuMemsetD32Async", RECORD]), || stream.fill(&mut buffer, 3))
    });
}
