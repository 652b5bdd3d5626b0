//! The whole simulated driver, behind one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::capture::{Capture, Graph};
use crate::config::{Config, Mode};
use crate::context::{Context, Entry};
use crate::device::Device;
use crate::engine::callback::Callbacks;
use crate::engine::clock::{Clock, Point};
use crate::engine::stream::{Event, Stream};
use crate::handle::{Handles, Id};
use crate::log::Log;
use crate::memory::pinned::PinnedMap;
use crate::memory::pool::Pool;
use crate::memory::space::Space;

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// Something happened outside a driver call: a host function returned.
pub(crate) static CHANGED: Condvar = Condvar::new();

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) mode: Mode,
    pub(crate) initialized: bool,
    pub(crate) next_id: Id,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<Id, Context>,
    pub(crate) context_handles: Handles,
    pub(crate) streams: BTreeMap<Id, Stream>,
    pub(crate) stream_handles: Handles,
    pub(crate) events: BTreeMap<Id, Event>,
    pub(crate) event_handles: Handles,
    pub(crate) pools: BTreeMap<Id, Pool>,
    pub(crate) pool_handles: Handles,
    pub(crate) graphs: BTreeMap<Id, Graph>,
    pub(crate) graph_handles: Handles,
    pub(crate) captures: BTreeMap<Id, Capture>,
    pub(crate) space: Space,
    pub(crate) pinned: PinnedMap,
    /// Context stacks by thread number.
    pub(crate) stacks: BTreeMap<u64, Vec<Entry>>,
    /// What the host has waited for.
    pub(crate) host: Clock,
    /// Destroyed streams with their last operation, which the host has not waited for yet.
    pub(crate) dead: Vec<Point>,
    /// Streams that are gone and whose work the host knows to be done.
    pub(crate) retired: BTreeSet<Id>,
    /// Host functions that were thrown away with their context.
    pub(crate) dropped_calls: u64,
    pub(crate) callbacks: Callbacks,
    pub(crate) log: Log,
}

/// Sets the driver up, once a process. `false`: it already was.
pub(crate) fn initialise(config: Config) -> bool {
    let mut fresh = false;
    STATE.get_or_init(|| {
        fresh = true;
        Mutex::new(State::new(config))
    });
    fresh
}

/// The driver; configured by the environment if nobody did it before.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    let state = STATE.get_or_init(|| {
        crate::exit::report_at_exit();
        Mutex::new(State::new(Config::from_env()))
    });
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn new(config: Config) -> Self {
        for refused in &config.refused {
            eprintln!("cuda-driver-sim: {refused}");
        }
        let mut state = Self {
            mode: config.mode,
            initialized: false,
            next_id: 1,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            context_handles: Handles::new(0x1000_0000),
            streams: BTreeMap::new(),
            stream_handles: Handles::new(0x2000_0000),
            events: BTreeMap::new(),
            event_handles: Handles::new(0x3000_0000),
            pools: BTreeMap::new(),
            pool_handles: Handles::new(0x4000_0000),
            graphs: BTreeMap::new(),
            graph_handles: Handles::new(0x5000_0000),
            captures: BTreeMap::new(),
            space: Space::new(config.devices as usize),
            pinned: PinnedMap::default(),
            stacks: BTreeMap::new(),
            host: Clock::default(),
            dead: Vec::new(),
            retired: BTreeSet::new(),
            dropped_calls: 0,
            callbacks: Callbacks::default(),
            log: Log {
                faults: config.faults.clone(),
                ..Log::default()
            },
            config,
        };
        for device in 0..state.config.devices as usize {
            let pool = state.new_pool(Pool::new(device, true));
            let pairs = state.config.unreachable.iter();
            let unreachable = pairs.filter(|(from, _)| *from as usize == device);
            let unreachable = unreachable.map(|&(_, to)| to as usize).collect();
            state.devices.push(Device {
                primary: None,
                retained: 0,
                primary_flags: 0,
                default_pool: pool,
                current_pool: pool,
                allocated: 0,
                unreachable,
            });
        }
        state
    }

    pub(crate) fn new_id(&mut self) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn new_pool(&mut self, pool: Pool) -> Id {
        let id = self.new_id();
        let handle = self.pool_handles.issue(id);
        self.pools.insert(id, Pool { handle, ..pool });
        id
    }

    pub(crate) fn new_stream(&mut self, stream: Stream) -> Id {
        let id = self.new_id();
        self.streams.insert(id, stream);
        id
    }

    /// Takes a destroyed stream without work out of the tables.
    pub(crate) fn bury(&mut self, id: Id) {
        if let Some(stream) = self.streams.remove(&id) {
            self.dead.push(Point {
                stream: id,
                seq: stream.issued,
            });
            self.retire_dead();
        }
    }

    /// The host has waited for everything that `clock` covers.
    pub(crate) fn host_join(&mut self, clock: &Clock) {
        let Self { host, retired, .. } = self;
        host.join_unless(clock, |stream| retired.contains(&stream));
        self.retire_dead();
    }

    /// Between sessions the host counts as having waited for everything that is done, so that what
    /// earlier sessions destroyed does not slow later ones.
    pub(crate) fn catch_up(&mut self) {
        let gone = self.dead.drain(..).map(|point| point.stream);
        self.retired.extend(gone);
        // Their threads may be gone, which nobody tells the driver; a thread that is not gets a new
        // one.
        let idle = |stream: &Stream| stream.is_idle() && stream.capture.is_none();
        for context in self.contexts.values_mut() {
            context.per_thread.retain(|_, id| {
                let keep = self.streams.get(id).is_some_and(|stream| !idle(stream));
                if !keep {
                    self.streams.remove(id);
                    self.retired.insert(*id);
                }
                keep
            });
        }
        self.stacks.retain(|_, stack| !stack.is_empty());
        let Self {
            host,
            retired,
            streams,
            ..
        } = self;
        let clocks = streams.values_mut().map(|stream| &mut stream.clock);
        for clock in clocks.chain([host]) {
            clock.forget_all(|stream| retired.contains(&stream));
        }
    }

    fn retire_dead(&mut self) {
        let Self {
            dead,
            host,
            retired,
            ..
        } = self;
        dead.retain(|&point| {
            let known = point.seq == 0 || host.covers(point);
            if known {
                retired.insert(point.stream);
                host.forget(point.stream);
            }
            !known
        });
    }
}
