//! Operations of several devices at once, compared with one raw call per copy.

mod host;
mod peers;
mod team;

use cuda_core::Device;

use crate::bench::measure::once;
use crate::bench::raw::retain;
use crate::bench::run::Side;
use crate::bench::{Fixture, Goal, Measured, Operation};
use host::{gather, gather_slice, scatter, scatter_slice, upload_all, upload_slice};
use team::Team;

/// The numbers of devices of a group.
const SIZES: [u32; 3] = [2, 4, 8];

pub(super) fn operations() -> Vec<Operation> {
    let few = "the driver makes few contexts no faster at once than one by one";
    let mut all = vec![
        // The raw calls create the contexts one after another.
        contexts(8).goal(Goal::Ratio(0.75)),
        contexts(4).without_goal(few),
        contexts(2).without_goal(few),
    ];
    for size in SIZES {
        let mut add = |what: &str, goal: Goal, run: fn(&Team) -> anyhow::Result<Measured>| {
            let name = format!("{what}, {size} devices");
            let measure = move |fixture: &Fixture| Team::new(size, fixture.effort)?.measure(run);
            all.push(Operation::new(name, measure).goal(goal).gpus(size));
        };
        let none = |raw: &str| Goal::None(format!("the raw {raw}"));
        let up = none("calls upload pinned memory");
        let down = none("calls download to pinned memory");
        let one = none("call copies to one device");
        let (most, nearly) = (Goal::Share(0.95), Goal::Share(0.97));
        add("upload to all, pinned", most.clone(), upload_all);
        add("upload to all, borrowed slice", up.clone(), upload_slice);
        add("scatter, pinned", most.clone(), scatter);
        add("scatter, borrowed slice", up, scatter_slice);
        add("gather, pinned", most, gather);
        add("gather, borrowed slice", down, gather_slice);
        add("ring of peer copies", nearly.clone(), peers::rotate);
        add("all-to-all of peer copies", nearly, peers::all_to_all);
        add("broadcast from one device", one, peers::broadcast);
        let theirs = none("calls are NCCL's broadcast");
        add("broadcast beside NCCL's", theirs, peers::broadcast_beside_nccl);
    }
    all
}

/// The creation of primary contexts: the library uses one thread per device; the raw calls create them one
/// after another. Measured in fresh processes, in which no context exists yet.
fn contexts(size: u32) -> Operation {
    let name = format!("contexts of {size} devices, at once");
    let create = move |_, _, side| {
        let devices: Vec<Device> = Device::all()?.take(size as usize).collect();
        match side {
            Side::Ours => once(|| Ok(Device::contexts(devices).map(drop)?)),
            Side::Raw => once(|| devices.into_iter().try_for_each(retain)),
        }
    };
    Operation::fresh(name, create).gpus(size)
}
