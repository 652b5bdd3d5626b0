//! Creates contexts and streams for tests.

use cuda_core::{Context, Device, Result, Stream};

/// Returns the primary context of device 0, and a new stream of it.
///
/// # Errors
/// The driver's.
pub fn one_stream() -> Result<(Context, Stream)> {
    let context = Device::get(0)?.context()?;
    let stream = context.create_stream()?;
    Ok((context, stream))
}

/// Returns the primary context of device 0, and two new streams of it.
///
/// # Errors
/// The driver's.
pub fn two_streams() -> Result<(Context, Stream, Stream)> {
    let (context, one) = one_stream()?;
    let two = context.create_stream()?;
    Ok((context, one, two))
}

/// Returns the primary contexts of the devices 0 and 1, and a new stream of each.
///
/// # Errors
/// The driver's.
pub fn two_devices() -> Result<([Context; 2], [Stream; 2])> {
    let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
    let streams = [contexts[0].create_stream()?, contexts[1].create_stream()?];
    Ok((contexts, streams))
}
