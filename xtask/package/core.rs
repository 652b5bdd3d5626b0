//! Moves bytes to every device and back through the safe layer.

use cuda_core::Device;

const BYTES: usize = 1 << 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut devices = 0;
    for device in Device::all()? {
        let sent: Vec<u8> = (0..BYTES).map(|i| (i * 31 + devices) as u8).collect();
        let mut received = vec![0_u8; BYTES];
        let stream = device.create_stream()?;
        let mut buffer = stream.alloc::<u8>(BYTES)?;
        stream.upload(&sent, &mut buffer)?;
        stream.download(&buffer, &mut received)?;
        assert!(sent == received, "device {devices} changed the bytes");
        devices += 1;
    }
    println!("{devices} devices, {BYTES} bytes each way: equal");
    Ok(())
}
