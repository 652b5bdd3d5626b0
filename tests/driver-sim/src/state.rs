//! The whole simulated driver, under one lock.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::capture::Capture;
use crate::config::{Config, Mode};
use crate::context::{Context, Entry};
use crate::device::Device;
use crate::engine::callback::Callbacks;
use crate::engine::clock::{Clock, Point};
use crate::engine::host::{DOOR, Host};
use crate::engine::schedule::{Draw, Schedule};
use crate::engine::stream::{Event, Stream};
use crate::graph::Graphs;
use crate::handle::{Id, Objects};
use crate::log::Log;
use crate::memory::external::ExternalMemory;
use crate::memory::image::Images;
use crate::memory::pinned::PinnedMap;
use crate::memory::pool::Pool;
use crate::memory::reservation::VirtualMemory;
use crate::memory::space::Space;
use crate::module::library::Libraries;
use crate::module::link::Link;
use crate::module::{Function, Module};
use crate::nccl::Nccl;
use crate::origin::Origin;
use crate::report::Violation;
use crate::table::Table;

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// Signalled when a waiting call may continue.
pub(crate) static CHANGED: Condvar = Condvar::new();

#[derive(Debug)]
pub(crate) struct State {
    /// See [`Session::set_polls`](crate::Session::set_polls).
    pub(crate) polls: u32,
    pub(crate) config: Config,
    pub(crate) mode: Mode,
    /// The schedule of threaded mode.
    pub(crate) schedule: Option<Schedule>,
    /// Decides the order of a launch's nodes.
    pub(crate) draw: Draw,
    pub(crate) initialized: bool,
    /// Whether the process exits and the driver has shut down.
    pub(crate) gone: bool,
    pub(crate) next_id: Id,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Objects<Context>,
    pub(crate) streams: Objects<Stream>,
    pub(crate) events: Objects<Event>,
    pub(crate) pools: Objects<Pool>,
    pub(crate) graphs: Graphs,
    pub(crate) captures: Table<Capture>,
    pub(crate) modules: Objects<Module>,
    pub(crate) functions: Objects<Function>,
    pub(crate) libraries: Libraries,
    pub(crate) links: Objects<Link>,
    /// The code of a kernel that faulted during this call.
    pub(crate) faulted: Option<cuda_sys::CUresult>,
    /// The stream whose queue this call has overfilled.
    pub(crate) overfull: Option<Id>,
    pub(crate) space: Space,
    pub(crate) pinned: PinnedMap,
    pub(crate) virtual_memory: VirtualMemory,
    pub(crate) external: ExternalMemory,
    pub(crate) images: Images,
    /// Context stacks by thread number.
    pub(crate) stacks: Table<Vec<Entry>>,
    pub(crate) nccl: Nccl,
    pub(crate) host: Host,
    /// Destroyed streams with their last operation, which the host has not waited for yet.
    pub(crate) dead: Vec<Point>,
    /// Whether a stream may have a wait for a value.
    pub(crate) values_awaited: bool,
    /// Host functions that were discarded with their context.
    pub(crate) dropped_calls: u64,
    pub(crate) callbacks: Callbacks,
    pub(crate) log: Log,
    /// Misuse outside of sessions.
    pub(crate) outside: Vec<Violation>,
}

/// Initialises the driver, once per process. Returns `false` if it already was.
pub(crate) fn initialise(config: Config) -> bool {
    let mut fresh = false;
    STATE.get_or_init(|| {
        fresh = true;
        crate::exit::report_at_exit(false);
        Mutex::new(State::new(config))
    });
    fresh
}

/// Locks the driver. The environment configures it if `install` was not called before.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    let state = STATE.get_or_init(|| {
        crate::exit::report_at_exit(true);
        // As in the simulator as a library. A program with kernels of its own does without the examples.
        if !crate::engine::kernel::any_registered() {
            crate::engine::kernel::examples::register();
        }
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
            polls: config.polls,
            schedule: config.mode.schedule(),
            draw: config.mode.draw(),
            initialized: false,
            gone: false,
            next_id: 1,
            devices: Vec::new(),
            contexts: Objects::new(0x1000_0000),
            streams: Objects::new(0x2000_0000),
            events: Objects::new(0x3000_0000),
            pools: Objects::new(0x4000_0000),
            graphs: Graphs::new(),
            captures: Table::new(),
            modules: Objects::new(0x6000_0000),
            functions: Objects::new(0x7000_0000),
            libraries: Libraries::new(),
            links: Objects::new(0xa000_0000),
            faulted: None,
            overfull: None,
            space: Space::new(config.devices as usize),
            pinned: PinnedMap::default(),
            virtual_memory: VirtualMemory::new(),
            external: ExternalMemory::new(),
            images: Images::new(),
            stacks: Table::new(),
            nccl: Nccl::new(config.mode.draw()),
            host: Host::new(&DOOR),
            dead: Vec::new(),
            values_awaited: false,
            dropped_calls: 0,
            callbacks: Callbacks::default(),
            log: Log {
                faults: config.faults.clone(),
                keeps_origins: config.origins,
                ..Log::default()
            },
            outside: Vec::new(),
            config,
        };
        for device in 0..state.config.devices as usize {
            let pool = state.new_pool(Pool::new(device, true));
            // The pool keeps its memory until a call trims it.
            let kept = Pool { release_threshold: u64::MAX, ..Pool::new(device, true) };
            let graph_pool = state.new_pool(kept);
            let pairs = state.config.unreachable.iter();
            let unreachable = pairs.filter(|(from, _)| *from as usize == device);
            let unreachable = unreachable.map(|&(_, to)| to as usize).collect();
            state.devices.push(Device {
                primary: None,
                retained: 0,
                primary_flags: 0,
                default_pool: pool,
                current_pool: pool,
                graph_pool,
                allocated: 0,
                unreachable,
            });
        }
        state
    }

    /// Changes when queued work runs, and restarts the schedule.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.schedule = mode.schedule();
        self.draw = mode.draw();
        self.nccl.draw = mode.draw();
    }

    pub(crate) fn new_id(&mut self) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        if self.log.keeps_origins {
            self.log.origins.insert(id, Origin::here());
        }
        id
    }

    pub(crate) fn new_pool(&mut self, pool: Pool) -> Id {
        let id = self.new_id();
        self.pools.add(id, pool);
        id
    }

    pub(crate) fn new_stream(&mut self, stream: Stream) -> Id {
        let id = self.new_id();
        self.streams.add_without_handle(id, stream);
        id
    }

    /// Removes a destroyed stream whose work is complete from the tables.
    pub(crate) fn bury(&mut self, id: Id) {
        if let Some(stream) = self.streams.remove(&id) {
            let point = Point { stream: id, seq: stream.issued };
            self.dead.push(point);
            self.retire_dead();
            let Self { contexts, dead, streams, .. } = self;
            if let Some(context) = contexts.get_mut(&stream.context) {
                // The clock includes what the stream's work had waited for.
                context.buried.join(&stream.clock);
                context.buried.set(point);
                if context.buried.len() > 2 * dead.len() + 64 {
                    context.buried.forget_all(|known| is_retired(streams, dead, known));
                }
            }
        }
    }

    /// Records that the host has waited for everything that `clock` covers.
    pub(crate) fn host_join(&mut self, clock: &Clock) {
        let mut new = Clock::default();
        new.join_unless(clock, |stream| is_retired(&self.streams, &self.dead, stream));
        self.host.join(new);
        self.retire_dead();
    }

    /// Records, between sessions, that the host has waited for all completed work, so that what earlier
    /// sessions destroyed does not slow later ones.
    pub(crate) fn catch_up(&mut self) {
        self.dead.clear();
        // Threads may have ended inside a group.
        self.nccl.groups = Table::new();
        // Memory that earlier graphs left for later ones would change how much is free.
        for device in &self.devices {
            if let Some(pool) = self.pools.get_mut(&device.graph_pool) {
                pool.trim(0);
            }
        }
        // The owning threads may have ended, which the driver does not notice. A thread that still runs gets
        // a new stream.
        let idle = |stream: &Stream| stream.is_idle() && stream.capture.is_none();
        for context in self.contexts.values_mut() {
            context.buried = Clock::default();
            context.per_thread.retain(|_, id| {
                let keep = self.streams.get(id).is_some_and(|stream| !idle(stream));
                if !keep {
                    self.streams.remove(id);
                }
                keep
            });
        }
        self.stacks.retain(|_, stack| !stack.is_empty());
        let alive: Vec<Id> = self.streams.keys().copied().collect();
        let gone = |stream: Id| alive.binary_search(&stream).is_err();
        for stream in self.streams.values_mut() {
            stream.clock.forget_all(gone);
        }
        self.host.forget_all(gone);
    }

    fn retire_dead(&mut self) {
        let Self { dead, host, .. } = self;
        dead.retain(|&point| {
            let known = point.seq == 0 || host.known().covers(point);
            if known {
                host.forget_all(|stream| stream == point.stream);
            }
            !known
        });
    }
}

/// Returns whether a stream is destroyed and the host knows its work to be complete.
pub(crate) fn is_retired(streams: &Objects<Stream>, dead: &[Point], stream: Id) -> bool {
    !streams.contains_key(&stream) && dead.iter().all(|point| point.stream != stream)
}
