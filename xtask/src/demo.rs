//! The demo: moves data between host and devices under guards, and compares every byte.

mod data;
mod guard;
mod report;
mod transfer;

use anyhow::{Context as _, ensure};
use cuda_core::Device;

use crate::progress::Progress;
use crate::target::Target;
use crate::{Outcome, refuse};
use report::{DeviceReport, Report};

/// The number of simulated devices if there is no GPU.
const SIMULATED: u32 = 4;

/// Moves data host → device → peer → host on every GPU and compares every byte.
///
/// Without a GPU it runs on the simulated driver, and the first line says so. Exit code 0: every
/// byte compared equal; 1: some did not, or a call failed; 2: there is no
/// such device.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ordinals of the devices to use, such as 0,2; all if not given.
    #[arg(long, value_delimiter = ',')]
    devices: Option<Vec<u32>>,
    /// Bytes of each transfer, such as 256MiB; 256MiB on GPUs and 4MiB simulated if not given.
    #[arg(long, value_parser = data::parse_size)]
    size: Option<usize>,
    /// Uses the simulated driver with this many devices, even if there are GPUs.
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Prints the result as JSON on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (target, why) = Target::real_or_simulated(args.sim, SIMULATED)?;
    target.install()?;
    let simulated = matches!(target, Target::Simulated { .. });
    show(args, simulated, target.to_string(), why)
}

/// Runs the demo on the chosen driver. A process chooses its driver once.
fn show(args: &Args, simulated: bool, driver: String, why: String) -> anyhow::Result<Outcome> {
    let usual = if simulated { 4 << 20 } else { 256 << 20 };
    let size = args.size.unwrap_or(usual);
    let devices = devices(args.devices.as_deref())?;
    let mut report =
        Report { simulated, driver, why, bytes: size, devices: Vec::new(), peers: Vec::new() };
    if !args.json {
        print!("{}", report.heading());
    }
    let pairs = devices.len() * devices.len().saturating_sub(1);
    let progress = Progress::bar(devices.len() * 6 + pairs);
    for &device in &devices {
        let result = visit(device, size, &progress)
            .with_context(|| format!("device {}", device.ordinal()))?;
        report.devices.push(result);
    }
    for &from in &devices {
        for &to in devices.iter().filter(|to| **to != from) {
            let pair = format!("device {} to device {}", from.ordinal(), to.ordinal());
            progress.step(format!("copying from {pair}"));
            let result = transfer::between(from, to, size).with_context(|| pair)?;
            report.peers.push(result);
        }
    }
    progress.finish();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.conclusion());
    }
    Ok(Outcome::of(report.verified()))
}

fn devices(wanted: Option<&[u32]>) -> anyhow::Result<Vec<Device>> {
    let Some(ordinals) = wanted else {
        return Ok(Device::all()?.collect());
    };
    let count = Device::count()?;
    let device = |(index, ordinal): (usize, &u32)| {
        let is_new = !ordinals[..index].contains(ordinal);
        ensure!(is_new, refuse(format!("--devices names {ordinal} twice")));
        ensure!(*ordinal < count, refuse(format!("there is no device {ordinal}")));
        Ok(Device::get(*ordinal)?)
    };
    ordinals.iter().enumerate().map(device).collect()
}

fn visit(device: Device, size: usize, progress: &Progress) -> anyhow::Result<DeviceReport> {
    let step = |what: &str| progress.step(format!("device {}: {what}", device.ordinal()));
    step("guard");
    let guard = guard::show(device)?;
    step("pinned memory and pattern");
    let mut bench = transfer::Bench::new(device, size)?;
    step("upload");
    let upload = bench.upload()?;
    step("copy on the device");
    let copy = bench.copy()?;
    step("download");
    let download = bench.download()?;
    step("every byte");
    let verified = bench.verify()?;
    let (major, minor) = device.compute_capability()?;
    Ok(DeviceReport {
        ordinal: device.ordinal(),
        name: device.name()?,
        memory: device.total_memory()?,
        compute_capability: format!("{major}.{minor}"),
        guard,
        upload,
        copy,
        download,
        verified,
    })
}

#[cfg(test)]
mod tests {
    use cuda_sim::Fault;
    use cuda_sys::CUDA_SUCCESS;

    use super::*;
    use crate::target;

    /// Runs the demo on this many simulated devices.
    fn demo(devices: u32) -> anyhow::Result<Outcome> {
        let args =
            Args { devices: Some((0..devices).collect()), size: Some(4096), sim: None, json: true };
        show(&args, true, "simulated driver".to_owned(), String::new())
    }

    #[test]
    fn bytes_that_the_safe_layer_did_not_move_are_missed() -> anyhow::Result<()> {
        let session = target::tests::simulated();
        for devices in [1, 2] {
            let begin = session.mark();
            assert_eq!(demo(devices)?, Outcome::Passed);
            let calls = session.since(begin);
            let copies = [
                "cuMemcpyHtoDAsync_v2",
                "cuMemcpyDtoDAsync_v2",
                "cuMemcpyDtoHAsync_v2",
                "cuMemcpyPeerAsync",
            ];
            for copy in copies.iter().take(if devices == 1 { 3 } else { 4 }) {
                // The last copy is the safe layer's: with the simulated fault it reports success without
                // moving bytes.
                let last = calls.iter().filter(|call| call.name == *copy).count() as u64;
                session.inject(Fault::new(CUDA_SUCCESS).function(copy).nth(last));
                assert_eq!(demo(devices)?, Outcome::Failed, "{copy}, {devices} devices");
                assert!(session.fault_fired());
                session.clear_faults();
            }
        }
        Ok(())
    }
}
