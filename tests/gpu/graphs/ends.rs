//! Dropping executables with pending launches.

use std::thread;

use cuda_core::{
    Condition, DeviceBuffer, Error, Graph, GraphExec, Result, Signal, WaitValue, drops,
};
use support::{gpu_test, one_stream};

gpu_test! {
    needs 1, cuda_12_4, asynchronous;
    fn l_an_executable_with_conditions_goes_after_its_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (go, drained) = (Signal::new(&context, 0u32)?, context.create_stream()?);
        let pending = |x: &mut DeviceBuffer<u32>, value| -> Result<GraphExec> {
            let graph = Graph::capture(&context, |stream| {
                Condition::new(stream, 1)?.if_then(stream, |body| body.fill(x, value))
            })?;
            let mut exec = graph.instantiate()?;
            go.set(0);
            stream.wait_signal(&go, WaitValue::Eq(1))?;
            exec.launch(&stream)?;
            Ok(exec)
        };
        // Calls that would have to wait if the driver waited for the launch.
        let mut memory = Vec::new();
        let mut other_calls = || -> Result<()> {
            memory.push(context.alloc::<u8>(1 << 20)?);
            Graph::capture(&context, |_| Ok(()))?.instantiate()?.launch(&drained)
        };
        drop(pending(&mut x, 3)?);
        other_calls()?;
        assert!(!stream.query()?, "it waits for the signal");
        go.set(1);
        assert_eq!(stream.download_vec(&x)?, [3; 100]);
        drops::flush();
        let exec = pending(&mut x, 4)?;
        thread::scope(|scope| {
            let closed = scope.spawn(|| exec.close());
            other_calls()?;
            go.set(1);
            closed.join().expect("closing does not panic").map_err(Error::from)
        })?;
        assert!(stream.query()?, "closing waits");
        assert_eq!(stream.download_vec(&x)?, [4; 100]);
        Ok(())
    }
}
