//! Runs queued work: only as far as a call needs it, dependencies first.

use std::time::Instant;

use crate::Mode;
use crate::engine::clock::Point;
use crate::engine::mover::touches_host;
use crate::engine::stream::{Recorded, StreamKind};
use crate::engine::work::{Place, Work};
use crate::handle::Id;
use crate::memory::block::Phase;
use crate::nccl::meet::Meeting;
use crate::report::ViolationKind;
use crate::state::State;

/// The result of one step of the operation at the front of a stream.
enum Step {
    Ran,
    Needs(Point),
    Blocked,
}

/// Bytes moved at once.
const CHUNK: usize = 64 << 10;

impl State {
    pub(crate) fn is_complete(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.completed >= point.seq)
    }

    /// Runs what `target` needs, in order. Returns `false` if a host function or a value wait is not
    /// complete.
    pub(crate) fn advance(&mut self, target: Point) -> bool {
        let mut needed = vec![target];
        while let Some(&point) = needed.last() {
            if self.is_complete(point) {
                needed.pop();
                continue;
            }
            match self.step(point.stream) {
                Step::Ran => {}
                // A cycle: an operation waits for itself.
                Step::Needs(other) if needed.contains(&other) => {
                    self.report_circle(other);
                    return false;
                }
                Step::Needs(other) => needed.push(other),
                Step::Blocked => return false,
            }
        }
        true
    }

    /// Runs everything that can run.
    pub(crate) fn advance_all(&mut self) {
        loop {
            let streams = self.busy_streams();
            let mut progress = false;
            for id in streams {
                while matches!(self.step(id), Step::Ran) {
                    progress = true;
                }
            }
            if !progress {
                return;
            }
        }
    }

    /// Returns whether a stream waits for a value in memory, which may arrive without a driver call.
    pub(crate) fn waits_for_value(&mut self) -> bool {
        if !self.values_awaited {
            return false;
        }
        let mut streams = self.streams.values();
        if streams.any(|stream| stream.queue.front().is_some_and(|op| op.work.waits())) {
            return true;
        }
        // There may be many streams, so they are not searched again until one more wait is enqueued.
        let mut queues = self.streams.values().map(|stream| &stream.queue);
        self.values_awaited = queues.any(|queue| queue.iter().any(|op| op.work.waits()));
        false
    }

    /// In threaded mode, runs queued work between two calls, as far as the schedule allows.
    pub(crate) fn drift(&mut self) {
        let Some(mut schedule) = self.schedule.take() else {
            return;
        };
        if self.nccl.jobs.values().next().is_some() && schedule.goes_on() {
            self.run_jobs();
        }
        while schedule.goes_on() {
            let busy = self.busy_streams();
            let Some(id) = schedule.pick(&busy) else {
                break;
            };
            self.step(id);
        }
        self.schedule = Some(schedule);
    }

    /// Returns the streams with work, without branches: the launches of graphs run those.
    fn busy_streams(&self) -> Vec<Id> {
        let busy = self.streams.iter();
        let busy =
            busy.filter(|(_, stream)| !stream.is_idle() && stream.kind != StreamKind::Branch);
        busy.map(|(&id, _)| id).collect()
    }

    /// Runs one step of one of these branches of a launch. The seed determines which.
    fn step_branches(&mut self, branches: &[Id]) -> Step {
        let (mut left, mut outside) = (branches.to_vec(), None);
        while !left.is_empty() {
            let at = self.draw.below(left.len() as u64) as usize;
            match self.step(left.swap_remove(at)) {
                Step::Ran => return Step::Ran,
                Step::Needs(point) if !branches.contains(&point.stream) => outside = Some(point),
                Step::Needs(_) | Step::Blocked => {}
            }
        }
        outside.map_or(Step::Blocked, Step::Needs)
    }

    fn step(&mut self, id: Id) -> Step {
        if self.gone {
            return Step::Blocked;
        }
        if self.land(id) {
            return Step::Ran;
        }
        let Some(stream) = self.streams.get(&id) else {
            return Step::Blocked;
        };
        let Some(op) = stream.queue.front().filter(|_| !stream.in_callback) else {
            return Step::Blocked;
        };
        if let Some(&dep) = op.deps.iter().find(|&&dep| !self.is_complete(dep)) {
            return Step::Needs(dep);
        }
        if let Work::Graph { branches, .. } = &op.work {
            // A branch whose nodes have run is gone.
            let left = branches.iter().copied().filter(|id| self.streams.contains_key(id));
            let left: Vec<Id> = left.collect();
            if !left.is_empty() {
                return self.step_branches(&left);
            }
        }
        if let Work::Conditional(rounds) = &op.work {
            let left = rounds.branches.iter().copied();
            let left: Vec<Id> = left.filter(|id| self.streams.contains_key(id)).collect();
            if !left.is_empty() {
                return self.step_branches(&left);
            }
            if self.next_round(id) {
                return Step::Ran;
            }
        }
        let Some(op) = self.streams.get(&id).and_then(|stream| stream.queue.front()) else {
            return Step::Blocked;
        };
        if matches!(op.work, Work::Call { .. }) {
            self.dispatch(id);
            return Step::Blocked;
        }
        if let Work::Communicate(operation) = &op.work {
            let (call, operation) = (op.call, operation.clone());
            match self.meet(call, &operation) {
                Meeting::Held => {}
                Meeting::Needs(point) => return Step::Needs(point),
                Meeting::Waits => return Step::Blocked,
            }
        }
        let Some(mut op) = self.streams.get_mut(&id).and_then(|s| s.queue.pop_front()) else {
            return Step::Blocked;
        };
        let goes_on = match &mut op.work {
            Work::WaitValue { src, value, width, compare } => {
                self.value_arrived(op.call, src, *value, *width, *compare)
            }
            Work::Kernel { run } => self.run_kernel(op.call, run),
            _ => true,
        };
        if !goes_on {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.queue.push_front(op);
            }
            return Step::Blocked;
        }
        if matches!(self.mode, Mode::Threaded { .. }) && touches_host(&op.work) {
            let moving = self.start(op);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.moving = Some(moving);
            }
            return Step::Ran;
        }
        if let Some(clock) = op.tells {
            self.host_join(&clock);
        }
        self.execute(id, op.seq, op.call, op.work);
        self.complete(id, op.seq);
        Step::Ran
    }

    /// Records that an operation is complete, and removes a destroyed stream after its last one.
    pub(crate) fn complete(&mut self, id: Id, seq: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.completed = seq;
        stream.polls = 0;
        if stream.destroyed && stream.is_idle() {
            self.bury(id);
        }
    }

    pub(super) fn execute(&mut self, stream: Id, seq: u64, call: &'static str, work: Work) {
        match work {
            Work::Nothing
            | Work::WaitValue { .. }
            | Work::Kernel { .. }
            | Work::Call { .. }
            | Work::Conditional(_) => {}
            Work::Communicate(operation) => self.communicate(call, &operation),
            Work::Graph { objects, conditions, .. } => {
                self.release_objects(&objects);
                conditions.iter().for_each(|condition| condition.end());
            }
            Work::Assign { conditions } => {
                conditions.iter().for_each(|condition| condition.begin());
            }
            Work::Copy { dst, src, bytes } => self.copy(call, &dst, &src, bytes),
            Work::Fill { dst, pattern, width, count } => {
                let pattern = &pattern.to_le_bytes()[..width];
                let chunk = pattern.repeat((CHUNK / width).min(count));
                let mut done = 0;
                while done < count * width {
                    let piece = chunk.len().min(count * width - done);
                    if !self.write(call, &dst, done, &chunk[..piece]) {
                        return;
                    }
                    done += piece;
                }
            }
            Work::Each(works) => {
                for work in works {
                    self.execute(stream, seq, call, work);
                }
            }
            Work::Alloc { block } => self.begin_block(block),
            Work::Free { block } => self.release_block(block, call),
            Work::Record { event } => {
                let here = Point { stream, seq };
                if let Some(event) = self.events.get_mut(&event) {
                    if let Recorded::On { point, reached, .. } = &mut event.recorded {
                        if *point == here {
                            *reached = Some(Instant::now());
                        }
                    }
                }
            }
            Work::WriteValue { dst, value, width } => {
                self.write_value(call, &dst, value, width);
            }
        }
    }

    fn copy(&mut self, call: &'static str, dst: &Place, src: &Place, bytes: usize) {
        let mut buffer = vec![0; CHUNK.min(bytes)];
        let mut done = 0;
        while done < bytes {
            let piece = buffer.len().min(bytes - done);
            let buffer = &mut buffer[..piece];
            if !self.read(call, src, done, buffer) || !self.write(call, dst, done, buffer) {
                return;
            }
            done += piece;
        }
    }

    pub(crate) fn read(
        &mut self,
        call: &'static str,
        place: &Place,
        at: usize,
        to: &mut [u8],
    ) -> bool {
        match place {
            Place::Device { block, offset } => {
                let Some(pages) = self.usable_pages(call, *block) else {
                    return false;
                };
                pages.read(offset + at, to);
            }
            Place::Staged(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
            Place::Pinned { .. } | Place::Pageable(_) => {
                let Some(from) = self.host_pointer(call, place, at) else {
                    return false;
                };
                // SAFETY: the range was inside its pinned block at enqueue and the block still exists, or the
                // caller of the copy vouched for its pageable memory and has not returned from that call.
                // `to` is the simulator's own buffer.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.cast_const(), to.as_mut_ptr(), to.len())
                };
            }
        }
        true
    }

    pub(crate) fn write(
        &mut self,
        call: &'static str,
        place: &Place,
        at: usize,
        from: &[u8],
    ) -> bool {
        match place {
            Place::Device { block, offset } => {
                let Some(pages) = self.usable_pages(call, *block) else {
                    return false;
                };
                pages.write(offset + at, from);
            }
            Place::Staged(_) => return false,
            Place::Pinned { .. } | Place::Pageable(_) => {
                let Some(to) = self.host_pointer(call, place, at) else {
                    return false;
                };
                // SAFETY: as in `read`, and the memory is the destination of this operation, so
                // the program does not touch it meanwhile.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
            }
        }
        true
    }

    /// Returns the bytes of a block unless it is freed. Reports use after the free, and before the
    /// allocation.
    fn usable_pages(
        &mut self,
        call: &'static str,
        id: Id,
    ) -> Option<&mut crate::memory::pages::Pages> {
        let Self { space, log, .. } = self;
        let block = space.blocks.get_mut(&id);
        let freed = match &block {
            None => Some("a call long ago"),
            Some(block) => match block.phase {
                Phase::Freed(free) => Some(free),
                _ => None,
            },
        };
        if let Some(free) = freed {
            let message = format!("its work ran after the block was freed by {free}");
            log.violation(ViolationKind::UseAfterFree, call, message);
            return None;
        }
        let block = block?;
        if !block.exists {
            let message = format!("its work ran before the {} of the block did", block.call);
            log.violation(ViolationKind::UseBeforeAllocation, call, message);
        }
        Some(&mut block.pages)
    }

    pub(super) fn host_pointer(
        &mut self,
        call: &'static str,
        place: &Place,
        at: usize,
    ) -> Option<*mut u8> {
        match *place {
            Place::Pageable(pointer) => Some(pointer.0.wrapping_add(at)),
            Place::Pinned { block, offset } => match self.pinned.blocks.get(&block) {
                Some(pinned) => Some(pinned.base.0.wrapping_add(offset + at)),
                None => {
                    let message = "its work ran after the pinned memory was freed".to_owned();
                    self.log.violation(ViolationKind::UseAfterFree, call, message);
                    None
                }
            },
            Place::Device { .. } | Place::Staged(_) => None,
        }
    }
}
