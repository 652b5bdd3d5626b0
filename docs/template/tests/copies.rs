//! Tests without kernels know nothing of the simulator: `.cargo/config.toml` names their driver.

use cuda_core::Device;

#[test]
fn values_return_from_every_device() -> cuda_core::Result<()> {
    for device in Device::all()? {
        let stream = device.create_stream()?;
        assert_eq!(template::there_and_back(&stream, &[1.0, 2.0, 3.0])?, [1.0, 2.0, 3.0]);
    }
    Ok(())
}
