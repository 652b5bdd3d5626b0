//! Devices with streams that write and wait for values of 32 bits only.

use cuda_core::{Device, Error, Result, Signal, WaitValue};
use cuda_sim::{Config, Session};

use support::child;

#[test]
fn values_unsupported() -> Result<()> {
    if child::ran(concat!(module_path!(), "::values_unsupported"), &[]) {
        return Ok(());
    }
    cuda_sim::install(Config::from_env().devices(1).without_wide_values())
        .expect("a process without a driver");
    let session = Session::begin();
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let (narrow, wide) =
        (Signal::new(&device.context()?, 0u32)?, Signal::new(&device.context()?, 0u64)?);
    let mut word = stream.context().alloc::<u32>(1)?;
    let mut long = stream.context().alloc::<u64>(1)?;
    let refused = [
        stream.write_signal(&wide, 1).err(),
        stream.wait_signal(&wide, WaitValue::Eq(1)).err(),
        stream.write_value(&mut long, 1).err(),
        stream.wait_value(&long, WaitValue::Eq(1)).err(),
        stream.wait_signal(&narrow, WaitValue::Nor(1)).err(),
        stream.wait_value(&word, WaitValue::Nor(1)).err(),
    ];
    for error in refused {
        match error {
            Some(Error::Unsupported { device: 0, feature, .. }) => {
                assert!(feature.contains("64-bit") || feature.contains("NOR"), "{feature}");
            }
            other => panic!("{other:?}"),
        }
    }
    for call in ["cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2"] {
        assert_eq!(session.calls(call), 0, "{call} was made");
    }
    // Everything else works, also the host's side of a wide signal.
    wide.set(1 << 40);
    assert_eq!(wide.get(), 1 << 40);
    stream.write_value(&mut word, 5)?;
    stream.wait_value(&word, WaitValue::Geq(5))?;
    stream.write_signal(&narrow, 6)?;
    stream.wait_signal(&narrow, WaitValue::And(2))?;
    stream.synchronize()?;
    assert_eq!(narrow.get(), 6);
    drop((stream, narrow, wide, word, long));
    cuda_core::staging::trim()?;
    session.assert_clean();
    child::done();
    Ok(())
}
