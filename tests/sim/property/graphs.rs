//! Programs with graphs that are recorded in all ways, instantiated, changed and launched, while other work
//! uses the same memory, and anything is dropped at any time.
//!
//! A launch does to the model what the operations of its graph do, in the order in which they were recorded.
//! It must be refused if, and only if, some pinned memory that they use is not lent to it. A graph has no
//! operation that the driver refused to capture.

mod exec;
mod memory;
mod program;
mod recorded;

use cuda_core::{Allocator, Context, Device, PinnedBuffer, Stream};
use cuda_sim::{Mode, Session};
use proptest::prelude::*;

use super::outcome::{Departure, Done, pick, take};
use super::{End, prove, run_alone};
use exec::Exec;
use memory::{LEN, Memories};
use program::{Step, What};
use recorded::Recorded;

/// Number of programs: some seconds' worth, and one under Miri.
const CASES: u32 = if cfg!(miri) { 1 } else { 150 };

/// Number of steps of the longest program.
const LONGEST: usize = if cfg!(miri) { 12 } else { 150 };

/// The most objects of one kind that a program has at once.
const MOST: usize = 4;

in_each_mode!(check);

fn check(modes: impl Strategy<Value = Mode>) {
    let end = prop_oneof![Just(End::Compare), Just(End::Drop)];
    let print = |(steps, end): &(Vec<Step>, End)| -> String {
        let steps: String = steps.iter().map(|step| format!("    {step:?}\n")).collect();
        format!("{steps}    then: {end:?}\n")
    };
    let run = |mode, (steps, end)| run_alone(mode, |session| enact(session, steps, end));
    prove(CASES, (modes, (program::steps(LONGEST), end)), print, run);
}

/// Runs a program. An error says which step departs from the model.
fn enact(session: &Session, steps: Vec<Step>, end: End) -> Result<(), String> {
    let mut world = World::new(session).map_err(|departure| departure.to_string())?;
    for (number, step) in steps.into_iter().enumerate() {
        world.act(step).map_err(|departure| format!("step {number}: {departure}"))?;
    }
    match end {
        End::Compare => world.compare().map_err(|departure| format!("at the end: {departure}")),
        End::Drop => Ok(()),
    }
}

struct World<'s> {
    session: &'s Session,
    context: Context,
    streams: Vec<Stream>,
    memory: Memories,
    graphs: Vec<Recorded>,
    execs: Vec<Exec>,
}

impl<'s> World<'s> {
    /// Creates some streams, and the initial memory.
    fn new(session: &'s Session) -> Result<Self, Departure> {
        let context = Device::get(0)?.context()?;
        let streams = (0..3).map(|_| context.create_stream()).collect::<cuda_core::Result<_>>()?;
        let (graphs, execs) = (Vec::new(), Vec::new());
        let memory = Memories::default();
        let mut world = Self { session, context, streams, memory, graphs, execs };
        for value in 0..3 {
            world.act(Step::Alloc { stream: value, allocator: value, value })?;
            world.act(Step::Pin { value: value + 10 })?;
        }
        Ok(world)
    }

    fn stream(&self, index: u8) -> Stream {
        self.streams[usize::from(index) % self.streams.len()].clone()
    }

    fn act(&mut self, step: Step) -> Done {
        match step {
            Step::Alloc { stream, allocator, value } if self.memory.device.len() < MOST => {
                let all = [Allocator::plain(), Allocator::driver_pool(), Allocator::cache()];
                let stream = self.stream(stream);
                let allocator = &all[usize::from(allocator) % all.len()];
                let mut buffer = stream.alloc_with(allocator, LEN)?;
                stream.fill(&mut buffer, value)?;
                let is_pooled = *allocator == Allocator::driver_pool();
                let held = self.memory.hold(buffer, value, is_pooled);
                self.memory.device.push(held);
            }
            Step::Pin { value } if self.memory.pinned.len() < MOST => {
                let buffer = PinnedBuffer::from_slice(&self.context, &[value; LEN])?;
                let held = self.memory.hold(buffer, value, false);
                self.memory.pinned.push(held);
            }
            Step::ReplaceStream { stream } => {
                let at = usize::from(stream) % self.streams.len();
                self.streams[at] = self.context.create_stream()?;
            }
            Step::Drop(What::Buffer, at) => drop(take(&mut self.memory.device, at)),
            Step::Drop(What::Pinned, at) => drop(take(&mut self.memory.pinned, at)),
            Step::Drop(What::Graph, at) => drop(take(&mut self.graphs, at)),
            Step::Drop(What::Exec, at) => drop(take(&mut self.execs, at)),
            Step::Run { stream, work } => {
                let stream = self.stream(stream);
                if let Some((op, views)) = self.memory.choose(work) {
                    views.enqueue(&stream)?;
                    self.memory.apply(&op);
                }
            }
            Step::Read { stream, buffer } => {
                let stream = self.stream(stream);
                if let Some(at) = usize::from(buffer).checked_rem(self.memory.device.len()) {
                    self.memory.compare(&stream, &self.memory.device[at])?;
                }
            }
            Step::ReadPinned { buffer } => {
                if let Some(at) = usize::from(buffer).checked_rem(self.memory.pinned.len()) {
                    self.memory.compare_pinned(&self.memory.pinned[at])?;
                }
            }
            Step::Record { how, all } if self.graphs.len() < MOST => {
                let recorded =
                    Recorded::new(self.session, &self.context, &mut self.memory, how, &all)?;
                self.graphs.extend(recorded);
            }
            Step::Instantiate { graph } if self.execs.len() < MOST => {
                if let Some(graph) = pick(&mut self.graphs, graph) {
                    self.execs.extend(Exec::new(graph, &self.memory)?);
                }
            }
            Step::Set { exec, node, all } => {
                if let Some(exec) = pick(&mut self.execs, exec) {
                    all.into_iter().try_for_each(|on| exec.set(&mut self.memory, node, on))?;
                }
            }
            Step::Enable { exec, node, enabled } => {
                if let Some(exec) = pick(&mut self.execs, exec) {
                    exec.enable(node, enabled)?;
                }
            }
            Step::Update { exec, all } => {
                if let Some(exec) = pick(&mut self.execs, exec) {
                    exec.update(self.session, &mut self.memory, &all)?;
                }
            }
            Step::Launch { exec, stream, lent } => {
                let stream = self.stream(stream);
                if let Some(exec) = pick(&mut self.execs, exec) {
                    exec.launch(&mut self.memory, &stream, lent)?;
                }
            }
            Step::Alloc { .. } | Step::Pin { .. } => {}
            Step::Record { .. } | Step::Instantiate { .. } => {}
        }
        Ok(())
    }

    fn compare(&self) -> Done {
        for held in &self.memory.device {
            self.memory.compare(&self.streams[0], held)?;
        }
        self.memory.pinned.iter().try_for_each(|held| self.memory.compare_pinned(held))
    }
}
