//! Kernels, as closures registered by name.
//!
//! PTX is parsed for the names and parameters of its kernels, and not executed: a launch runs the
//! closure registered under the kernel's name, late and in the order of its stream, like any other
//! work. A second closure declares beforehand what the kernel reads and writes, so that the
//! ordering of its accesses is checked when the launch is enqueued.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUresult};

use crate::engine::work::{AccessKind, Place};
use crate::handle::Id;
use crate::memory::block::Phase;
use crate::state::State;

/// Attributes of a launch beside its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchAttributes {
    /// All blocks may wait for each other.
    pub cooperative: bool,
    /// Cluster dimensions, in blocks.
    pub cluster: Option<[u32; 3]>,
    /// Replaces the stream's priority.
    pub priority: Option<i32>,
    /// The kernel may begin before the one before it has ended.
    pub programmatic: bool,
    /// The memory synchronisation domain of the kernel.
    pub memory_sync_domain: u32,
}

/// The arguments and dimensions of a launch.
#[derive(Debug, Clone)]
pub struct Arguments {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) attributes: LaunchAttributes,
    pub(crate) parameters: Vec<Vec<u8>>,
    pub(crate) globals: BTreeMap<String, u64>,
}

/// Memory that a kernel touches.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) kind: AccessKind,
}

/// Why a kernel stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// It spins until memory changes: the closure is called again later.
    Spins,
    /// It faults, and its context is lost.
    Faults(CUresult),
}

/// Memory as a running kernel sees it.
#[derive(Debug)]
pub struct Memory<'a> {
    state: &'a mut State,
    call: &'static str,
    bound: &'a [(u64, usize, Place)],
}

type Touches = dyn Fn(&Arguments) -> Vec<Region> + Send + Sync;
type Body = dyn Fn(&Arguments, &mut Memory<'_>) -> Result<(), Trap> + Send + Sync;

#[derive(Clone)]
struct Kernel {
    touches: Arc<Touches>,
    body: Arc<Body>,
}

static KERNELS: Mutex<BTreeMap<String, Kernel>> = Mutex::new(BTreeMap::new());

/// Makes launches of kernels named `name` run `body`, which touches only what `touches` returns.
/// The last registration of a name counts.
///
/// The simulator calls both under the driver's lock: they cannot call the driver.
pub fn register_kernel(
    name: &str,
    touches: impl Fn(&Arguments) -> Vec<Region> + Send + Sync + 'static,
    body: impl Fn(&Arguments, &mut Memory<'_>) -> Result<(), Trap> + Send + Sync + 'static,
) {
    let kernel = Kernel { touches: Arc::new(touches), body: Arc::new(body) };
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    kernels.insert(name.to_owned(), kernel);
}

impl Arguments {
    /// Total number of threads of the launch.
    #[must_use]
    pub fn threads(&self) -> u64 {
        let all = self.grid.iter().chain(&self.block);
        all.map(|&size| u64::from(size)).product()
    }

    /// Bytes of dynamic shared memory per block.
    #[must_use]
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Attributes of the launch beside its dimensions.
    #[must_use]
    pub fn attributes(&self) -> LaunchAttributes {
        self.attributes
    }

    /// The bytes of a parameter.
    ///
    /// # Panics
    /// If there are fewer parameters.
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.parameters[index]
    }

    /// A parameter of four bytes.
    ///
    /// # Panics
    /// If it has another size.
    #[must_use]
    pub fn u32(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.bytes(index).try_into().expect("four bytes"))
    }

    /// A parameter of eight bytes: a number or an address.
    ///
    /// # Panics
    /// If it has another size.
    #[must_use]
    pub fn u64(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.bytes(index).try_into().expect("eight bytes"))
    }

    /// A `float`.
    ///
    /// # Panics
    /// If it has another size.
    #[must_use]
    pub fn f32(&self, index: usize) -> f32 {
        f32::from_bits(self.u32(index))
    }

    /// The address of a global variable of the kernel's module.
    ///
    /// # Panics
    /// If the module has none of that name.
    #[must_use]
    pub fn global(&self, name: &str) -> u64 {
        self.globals[name]
    }
}

impl Region {
    /// Bytes that the kernel reads.
    #[must_use]
    pub fn read(address: u64, bytes: usize) -> Self {
        let kind = AccessKind::Read;
        Self { address, bytes, kind }
    }

    /// Bytes that the kernel writes, and may read.
    #[must_use]
    pub fn write(address: u64, bytes: usize) -> Self {
        let kind = AccessKind::Write;
        Self { address, bytes, kind }
    }
}

impl Memory<'_> {
    /// Reads bytes.
    ///
    /// # Errors
    /// The fault of an address that is in no allocation.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Trap> {
        let (place, at) = self.place(address, to.len())?;
        self.state.read(self.call, &place, at, to);
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// The fault of an address that is in no allocation.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Trap> {
        let (place, at) = self.place(address, from.len())?;
        self.state.write(self.call, &place, at, from);
        Ok(())
    }

    /// Reads a word.
    ///
    /// # Errors
    /// The fault of an address that is in no allocation.
    pub fn read_u32(&mut self, address: u64) -> Result<u32, Trap> {
        let (place, at) = self.place(address, 4)?;
        let place = place.behind(at);
        let value = self.state.read_value(self.call, &place, 4);
        // A touch of freed memory has been reported already.
        Ok(value.unwrap_or(0) as u32)
    }

    /// Writes a word.
    ///
    /// # Errors
    /// The fault of an address that is in no allocation.
    pub fn write_u32(&mut self, address: u64, value: u32) -> Result<(), Trap> {
        self.write(address, &value.to_le_bytes())
    }

    /// The memory at an address: a declared region, as it was when the kernel was launched, or else
    /// whatever is there now.
    fn place(&self, address: u64, bytes: usize) -> Result<(Place, usize), Trap> {
        let end = address.checked_add(bytes as u64);
        let inside = |start: u64, size: usize| {
            address >= start && end.is_some_and(|end| end <= start + size as u64)
        };
        let bound = self.bound.iter().find(|(start, size, _)| inside(*start, *size));
        if let Some((start, _, place)) = bound {
            let place = match *place {
                Place::Device { block, offset } => Place::Device { block, offset },
                Place::Pinned { block, offset } => Place::Pinned { block, offset },
                Place::Pageable(_) | Place::Staged(_) => return Err(illegal()),
            };
            return Ok((place, (address - start) as usize));
        }
        if let Some((block, offset)) = self.state.pinned.find(address as usize) {
            return Ok((Place::Pinned { block, offset }, 0));
        }
        let block = self.state.space.find(address).ok_or(illegal())?;
        let held = &self.state.space.blocks[&block];
        if matches!(held.phase, Phase::Freed(_)) || !inside(held.address, held.size) {
            return Err(illegal());
        }
        let offset = (address - held.address) as usize;
        Ok((Place::Device { block, offset }, 0))
    }
}

fn illegal() -> Trap {
    Trap::Faults(CUDA_ERROR_ILLEGAL_ADDRESS)
}

/// A queued launch.
pub(crate) struct Run {
    kernel: Kernel,
    arguments: Arguments,
    bound: Vec<(u64, usize, Place)>,
    context: Id,
    /// It ran before, and waits for memory to change.
    pub(super) spun: bool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

impl State {
    /// A launch of a registered kernel, with the accesses that it declares; `None` where no kernel
    /// of that name is registered.
    pub(crate) fn prepare(
        &mut self,
        call: &'static str,
        context: Id,
        name: &str,
        arguments: Arguments,
    ) -> Result<Option<(Run, Vec<Region>)>, CUresult> {
        let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kernel) = kernels.get(name).cloned() else {
            return Ok(None);
        };
        drop(kernels);
        let mut regions = (kernel.touches)(&arguments);
        regions.retain(|region| region.bytes > 0);
        let mut bound = Vec::new();
        for region in &regions {
            let place = self.device_place(call, region.address, region.bytes)?;
            bound.push((region.address, region.bytes, place));
        }
        let run = Run { kernel, arguments, bound, context, spun: false };
        Ok(Some((run, regions)))
    }

    /// Runs a launch; `false` if it spins and has to be run again.
    pub(super) fn run_kernel(&mut self, call: &'static str, run: &mut Run) -> bool {
        let body = Arc::clone(&run.kernel.body);
        let mut memory = Memory { state: self, call, bound: &run.bound };
        match body(&run.arguments, &mut memory) {
            Ok(()) => true,
            Err(Trap::Spins) => {
                run.spun = true;
                false
            }
            Err(Trap::Faults(code)) => {
                if let Some(context) = self.contexts.get_mut(&run.context) {
                    context.lost = Some(code);
                }
                self.faulted = Some(code);
                true
            }
        }
    }
}
