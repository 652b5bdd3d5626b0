//! The demo's results.

use std::fmt;
use std::fmt::Write as _;
use std::iter;

use serde::Serialize;

use super::data;
use super::guard::GuardReport;
use super::transfer::{PeerReport, Rate};
use crate::table::Table;

/// All results.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) simulated: bool,
    pub(crate) driver: String,
    /// Bytes of each transfer.
    pub(crate) bytes: usize,
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) peers: Vec<PeerReport>,
}

/// One device alone.
#[derive(Serialize)]
pub(crate) struct DeviceReport {
    pub(crate) ordinal: u32,
    pub(crate) name: String,
    /// Bytes.
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
        let devices = self.devices.iter();
        !self.devices.is_empty()
            && devices.clone().all(|d| d.verified && d.guard.restored)
            && self.peers.iter().all(|peer| peer.verified)
    }

    pub(crate) fn heading(&self) -> String {
        let (kind, note) = match self.simulated {
            true => {
                ("NO GPU USED: ", "; its rates are those of this machine's memory and mean nothing")
            }
            false => ("", ""),
        };
        let (driver, size) = (&self.driver, data::show_size(self.bytes));
        format!("{kind}{driver}\ntransfers of {size} in GB/s: safe layer (raw driver){note}\n\n")
    }

    pub(crate) fn conclusion(&self) -> String {
        let mut text = String::new();
        if !self.peers.is_empty() {
            text.push_str(&self.matrix());
        }
        let guards = self.devices.iter().filter(|d| d.guard.restored).count();
        let transfers = self.devices.len() + self.peers.len();
        let equal = self.devices.iter().filter(|d| d.verified).count()
            + self.peers.iter().filter(|p| p.verified).count();
        let verdict = if self.verified() { "ok" } else { "FAILED" };
        let devices = self.devices.len();
        let _ = writeln!(
            text,
            "{verdict}: {equal} of {transfers} round trips equal in every byte, \
             {guards} of {devices} guards restored"
        );
        text
    }

    /// One row per source, one column per destination.
    fn matrix(&self) -> String {
        let ordinals: Vec<u32> = self.devices.iter().map(|device| device.ordinal).collect();
        let cell = |from, to| {
            let pair = self.peers.iter().find(|it| (it.from, it.to) == (from, to));
            match pair {
                None => "-".to_owned(),
                Some(peer) if !peer.verified => "WRONG BYTES".to_owned(),
                Some(peer) => {
                    let mark = if peer.access { "" } else { "*" };
                    format!("{:.1} ({:.1}){mark}", peer.copy.safe, peer.copy.raw)
                }
            }
        };
        let headings = iter::once("from".to_owned());
        let mut table = Table::new(headings.chain(ordinals.iter().map(|to| format!("to {to}"))));
        for from in &ordinals {
            let cells = ordinals.iter().map(|to| cell(*from, *to));
            table.row(iter::once(from.to_string()).chain(cells));
        }
        let mut text = format!("peer copies, from the row's device to the column's\n{table}");
        if self.peers.iter().any(|peer| !peer.access) {
            text.push_str("* without direct access\n");
        }
        text.push('\n');
        text
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinal, name, .. } = self;
        let gib = self.memory as f64 / f64::from(1 << 30);
        let capability = &self.compute_capability;
        let GuardReport { before, inside, after, restored } = &self.guard;
        let verdict = if *restored { "" } else { "  NOT RESTORED" };
        writeln!(
            f,
            "device {ordinal}: {name}, {gib:.0} GiB, compute capability {capability}\n\
             \x20 current       before: {before}, in the guard: {inside}, after: {after}{verdict}"
        )?;
        for (what, rate) in [
            ("pinned upload", self.upload),
            ("device copy", self.copy),
            ("pinned download", self.download),
        ] {
            writeln!(f, "  {what:<16}{:>8.1} ({:.1})", rate.safe, rate.raw)?;
        }
        let verdict = if self.verified { "equal" } else { "WRONG BYTES" };
        writeln!(f, "  every byte      {verdict}\n")
    }
}
