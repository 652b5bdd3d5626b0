//! Three threads that take turns, each with its own context stack, guards and default streams.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use cuda_core::{Context, Guard, PerThreadStream};

use super::outcome::Done;
use super::program::{Op, Step};
use super::world::World;

type Turn = (Op, World);

/// The result of a step.
pub(super) struct Answer {
    pub(super) world: World,
    pub(super) done: Done,
    /// Whether the driver's context stack equals the model's.
    pub(super) current: Result<(), String>,
}

pub(super) struct Threads(Vec<Worker>);

struct Worker {
    turns: Sender<Turn>,
    answers: Receiver<Answer>,
    thread: JoinHandle<()>,
}

impl Threads {
    pub(super) fn start() -> Self {
        Self((0..3).map(|_| Worker::start()).collect())
    }

    /// Sends the step to its thread, and waits for the answer.
    pub(super) fn run(&mut self, step: Step, world: World) -> Result<Answer, String> {
        let worker = &self.0[usize::from(step.thread) % self.0.len()];
        let gone = |_| "the thread panicked".to_owned();
        worker.turns.send((step.op, world)).map_err(|_| gone(()))?;
        worker.answers.recv().map_err(|_| gone(()))
    }

    /// Ends the threads one after the other.
    pub(super) fn end(self) -> Result<(), String> {
        self.0.into_iter().try_for_each(|worker| {
            drop(worker.turns);
            worker.thread.join().map_err(|_| "a thread panicked".to_owned())
        })
    }
}

impl Worker {
    fn start() -> Self {
        let (turns, incoming) = channel::<Turn>();
        let (outgoing, answers) = channel();
        let thread = thread::spawn(move || {
            let mut local = Local::default();
            for (op, mut world) in incoming {
                let done = world.act(op, &mut local);
                let current = local.compare();
                let answer = Answer { world, done, current };
                if outgoing.send(answer).is_err() {
                    return;
                }
            }
        });
        Self { turns, answers, thread }
    }
}

/// The objects of one thread.
#[derive(Default)]
pub(super) struct Local {
    /// Guards with what each of them saved.
    guards: Vec<(Guard, Option<usize>)>,
    streams: Vec<PerThreadStream>,
    /// The model of the context stack, the top last.
    stack: Vec<usize>,
}

impl Local {
    /// Returns the thread's default stream. The thread keeps the first one that it uses, and creates others
    /// for a single operation each.
    pub(super) fn per_thread(&mut self, context: &Context) -> cuda_core::Result<PerThreadStream> {
        let stream = context.per_thread_stream()?;
        if self.streams.is_empty() {
            self.streams.push(stream.clone());
        }
        Ok(stream)
    }

    pub(super) fn has_guards(&self) -> bool {
        !self.guards.is_empty()
    }

    pub(super) fn enter(&mut self, context: &Context) -> cuda_core::Result<()> {
        let guard = context.enter()?;
        self.guards.push((guard, self.stack.last().copied()));
        self.replace_top(context);
        Ok(())
    }

    /// Ends a guard; guards may end in any order.
    pub(super) fn leave(&mut self, guard: u8, explicit: bool) -> cuda_core::Result<()> {
        let index = usize::from(guard) % self.guards.len();
        let (guard, saved) = self.guards.remove(index);
        match saved {
            None => self.stack.clear(),
            Some(saved) => {
                self.stack.pop();
                self.stack.push(saved);
            }
        }
        if explicit {
            return guard.restore();
        }
        drop(guard);
        Ok(())
    }

    /// Forgets a guard, which leaves its context current.
    pub(super) fn forget(&mut self, guard: u8) {
        let index = usize::from(guard) % self.guards.len();
        std::mem::forget(self.guards.remove(index).0);
    }

    pub(super) fn push(&mut self, context: &Context) -> cuda_core::Result<()> {
        context.push()?;
        self.stack.push(context.as_raw().addr());
        Ok(())
    }

    pub(super) fn set_current(&mut self, context: &Context) -> cuda_core::Result<()> {
        context.set_current()?;
        self.replace_top(context);
        Ok(())
    }

    fn replace_top(&mut self, context: &Context) {
        self.stack.pop();
        self.stack.push(context.as_raw().addr());
    }

    /// Compares the driver's stack with the model's. If they differ, the model adopts the driver's.
    fn compare(&mut self) -> Result<(), String> {
        let mut actual = cuda_sim::context_stack();
        actual.reverse();
        if actual == self.stack {
            return Ok(());
        }
        let wrong = format!("the context stack is {actual:x?}, expected {:x?}", self.stack);
        self.stack = actual;
        Err(wrong)
    }
}
