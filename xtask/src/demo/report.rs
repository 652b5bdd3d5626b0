//! The demo's results.

use std::collections::BTreeMap;
use std::iter;

use serde::Serialize;

use super::data;
use super::guard::GuardReport;
use super::transfer::{PeerReport, Rate};
use crate::table::Table;

/// The number of devices up to which the matrix of copies has both rates.
const WIDE: usize = 4;

/// All results.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) simulated: bool,
    pub(crate) driver: String,
    /// The reason why the driver is simulated.
    #[serde(skip)]
    pub(crate) why: String,
    /// The number of bytes of each transfer.
    pub(crate) bytes: usize,
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) peers: Vec<PeerReport>,
}

/// The results of one device alone.
#[derive(Serialize)]
pub(crate) struct DeviceReport {
    pub(crate) ordinal: u32,
    pub(crate) name: String,
    /// The size in bytes.
    pub(crate) memory: usize,
    pub(crate) compute_capability: String,
    pub(crate) guard: GuardReport,
    pub(crate) upload: Rate,
    pub(crate) copy: Rate,
    pub(crate) download: Rate,
    /// Whether every byte that returned to the host compared equal.
    pub(crate) verified: bool,
}

impl Report {
    /// Whether every byte compared equal and every guard restored the current context.
    pub(crate) fn verified(&self) -> bool {
        !self.devices.is_empty()
            && self.devices.iter().all(|d| d.verified && d.guard.restored)
            && self.peers.iter().all(|peer| peer.verified)
    }

    /// The lines that are known before any transfer.
    pub(crate) fn heading(&self) -> String {
        let (driver, size) = (&self.driver, data::show_size(self.bytes));
        let kind = match self.simulated {
            true => format!("NO GPU USED, rates mean nothing: {driver}\n{}", self.why),
            false => driver.clone(),
        };
        format!("{kind}\nGB/s of the safe layer (of the raw driver), {size} each\n")
    }

    /// The results.
    pub(crate) fn conclusion(&self) -> String {
        let mut text = self.kinds();
        text += &format!("{}\n", self.alone());
        if !self.peers.is_empty() {
            text.push_str(&self.matrix());
        }
        let guards = self.devices.iter().filter(|d| d.guard.restored).count();
        let transfers = self.devices.len() + self.peers.len();
        let equal = self.devices.iter().filter(|d| d.verified).count()
            + self.peers.iter().filter(|p| p.verified).count();
        let verdict = if self.verified() { "ok" } else { "FAILED" };
        let devices = self.devices.len();
        text + &format!(
            "{verdict}: {equal} of {transfers} round trips equal in every byte, \
             {guards} of {devices} guards restored\n"
        )
    }

    /// Formats a line for each kind of device.
    fn kinds(&self) -> String {
        let mut kinds = BTreeMap::<_, usize>::new();
        for device in &self.devices {
            let gib = device.memory as f64 / f64::from(1 << 30);
            let (name, capability) = (&device.name, &device.compute_capability);
            let kind = format!("{name}, {gib:.0} GiB, compute capability {capability}");
            *kinds.entry(kind).or_default() += 1;
        }
        kinds.iter().map(|(kind, count)| format!("{count} × {kind}\n")).collect()
    }

    /// Formats one row per device.
    fn alone(&self) -> Table {
        let headings =
            ["device", "guard: before, in, after", "upload", "copy", "download", "bytes"];
        let mut table = Table::new(headings).left(&[0, 1]);
        for device in &self.devices {
            let GuardReport { before, inside, after, restored } = &device.guard;
            let verdict = if *restored { "" } else { "  NOT RESTORED" };
            table.row([
                device.ordinal.to_string(),
                format!("{before}, {inside}, {after}{verdict}"),
                both(&device.upload),
                both(&device.copy),
                both(&device.download),
                if device.verified { "equal" } else { "WRONG" }.to_owned(),
            ]);
        }
        table
    }

    /// Formats one row per source and one column per destination. Leaves out the raw driver's rates if there
    /// are many devices, so that a row fits on a line.
    fn matrix(&self) -> String {
        let ordinals: Vec<u32> = self.devices.iter().map(|device| device.ordinal).collect();
        let pair = |from, to| self.peers.iter().find(|it| (it.from, it.to) == (from, to));
        let is_wide = ordinals.len() > WIDE;
        let cell = |from, to| match pair(from, to) {
            None => "-".to_owned(),
            Some(peer) if !peer.verified => "WRONG".to_owned(),
            Some(peer) => {
                let mark = if peer.access { "" } else { "*" };
                let rate = if is_wide { one(peer.copy.safe) } else { both(&peer.copy) };
                format!("{rate}{mark}")
            }
        };
        let headings = iter::once("copies from".to_owned());
        let mut table = Table::new(headings.chain(ordinals.iter().map(|to| format!("to {to}"))));
        for from in &ordinals {
            let cells = ordinals.iter().map(|to| cell(*from, *to));
            table.row(iter::once(from.to_string()).chain(cells));
        }
        let mut text = table.to_string();
        if self.peers.iter().any(|peer| !peer.access) {
            text.push_str("* without direct access\n");
        }
        text.push('\n');
        text
    }
}

/// Formats a rate in about four characters.
fn one(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn both(rate: &Rate) -> String {
    format!("{} ({})", one(rate.safe), one(rate.raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(devices: u32) -> Report {
        let rate = || Rate { safe: 1234.5, raw: 1300.5 };
        let ordinals = 0..devices;
        let device = |ordinal| DeviceReport {
            ordinal,
            name: "NVIDIA H200".to_owned(),
            memory: 141 << 30,
            compute_capability: "9.0".to_owned(),
            guard: GuardReport {
                before: "none".to_owned(),
                inside: format!("device {ordinal}"),
                after: "none".to_owned(),
                restored: true,
            },
            upload: rate(),
            copy: rate(),
            download: rate(),
            verified: true,
        };
        let pairs = ordinals.clone().flat_map(|from| (0..devices).map(move |to| (from, to)));
        let peer = |(from, to)| PeerReport { from, to, access: true, copy: rate(), verified: true };
        Report {
            simulated: false,
            driver: format!("{devices} × NVIDIA H200, driver for CUDA 13.0"),
            why: String::new(),
            bytes: 256 << 20,
            devices: ordinals.map(device).collect(),
            peers: pairs.filter(|(from, to)| from != to).map(peer).collect(),
        }
    }

    #[test]
    fn a_screen_has_the_whole_report() {
        for devices in [1, 2, 4, 8] {
            let report = report(devices);
            let text = report.heading() + &report.conclusion();
            assert!(text.lines().count() <= 24, "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(80), "{longest:?}\n{text}");
        }
    }
}
