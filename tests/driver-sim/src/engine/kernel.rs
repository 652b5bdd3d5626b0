//! Kernels, as closures registered by name.
//!
//! The simulator parses PTX for the names and parameters of its kernels, and does not execute it. A launch
//! runs the closure registered under the kernel's name, late and in the order of its stream, like other
//! work. A second closure declares what the kernel reads and writes, so that the ordering of its accesses is
//! checked when the launch is enqueued. [`kernels!`](crate::kernels!) makes both closures of one function.

mod declare;
pub(crate) mod examples;
mod registry;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_sys::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MISALIGNED_ADDRESS, CUresult,
};

pub use declare::run_kernel_body;
pub(crate) use registry::any_registered;
use registry::{Kernel, registered};
pub use registry::{register_declared_kernel, register_kernel};

use super::element::{ByValue, Element, bytes_of};
use crate::engine::work::{AccessKind, Place};
use crate::handle::Id;
use crate::memory::block::Phase;
use crate::report::ViolationKind;
use crate::state::State;

/// Attributes of a launch beside its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchAttributes {
    /// Whether all blocks may wait for each other.
    pub cooperative: bool,
    /// Cluster dimensions, in blocks.
    pub cluster: Option<[u32; 3]>,
    /// Replaces the stream's priority.
    pub priority: Option<i32>,
    /// Whether the kernel may begin before the preceding one has ended.
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
    /// Whether the address is the handle of a texture or a surface, whose texels the region is.
    is_image: bool,
}

/// The reason why a kernel stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// The kernel spins until memory changes: the closure is called again later.
    Spins,
    /// The kernel faults, and its context is lost.
    Faults(CUresult),
}

/// Memory as a running kernel sees it.
#[derive(Debug)]
pub struct Memory<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) call: &'static str,
    pub(crate) context: Id,
    kernel: &'a str,
    declared: &'a [Region],
    bound: &'a [(u64, usize, Place)],
}

impl Arguments {
    /// Returns the blocks of the grid in each dimension.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Returns the threads of a block in each dimension.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Returns the total number of threads of the launch.
    #[must_use]
    pub fn threads(&self) -> u64 {
        let all = self.grid.iter().chain(&self.block);
        all.map(|&size| u64::from(size)).product()
    }

    /// Returns the bytes of dynamic shared memory per block.
    #[must_use]
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Returns the attributes of the launch beside its dimensions.
    #[must_use]
    pub fn attributes(&self) -> LaunchAttributes {
        self.attributes
    }

    /// Returns the bytes of a parameter; the first is number 0.
    ///
    /// # Panics
    /// If there are fewer parameters.
    #[must_use]
    #[track_caller]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let count = self.parameters.len();
        assert!(index < count, "no parameter {index}: the kernel has {count}, from number 0 on");
        &self.parameters[index]
    }

    /// Returns a parameter that is passed by value.
    ///
    /// # Panics
    /// If the parameter has another size.
    #[must_use]
    #[track_caller]
    pub fn value<T: ByValue>(&self, index: usize) -> T {
        let bytes = self.bytes(index);
        let size = size_of::<T>();
        assert!(bytes.len() == size, "parameter {index} has {} bytes, not {size}", bytes.len());
        T::read(bytes)
    }

    /// Returns a parameter that is an address.
    ///
    /// # Panics
    /// If the parameter does not have eight bytes.
    #[must_use]
    #[track_caller]
    pub fn address(&self, index: usize) -> u64 {
        self.value(index)
    }

    /// Returns the region of the `len` elements that parameter `index` points to, which the kernel reads.
    ///
    /// # Panics
    /// If the parameter does not have eight bytes.
    #[must_use]
    #[track_caller]
    pub fn reads<T: Element>(&self, index: usize, len: usize) -> Region {
        Region::read(self.address(index), len * size_of::<T>())
    }

    /// Returns the region of the `len` elements that parameter `index` points to, which the kernel writes and
    /// may read.
    ///
    /// # Panics
    /// If the parameter does not have eight bytes.
    #[must_use]
    #[track_caller]
    pub fn writes<T: Element>(&self, index: usize, len: usize) -> Region {
        Region::write(self.address(index), len * size_of::<T>())
    }

    /// Returns the texels of the texture or surface whose handle is parameter `index`, which the kernel
    /// reads: [`Memory::slice`] returns them for the handle, row after row.
    ///
    /// # Panics
    /// If the parameter does not have eight bytes.
    #[must_use]
    #[track_caller]
    pub fn samples(&self, index: usize) -> Region {
        Region { is_image: true, ..Region::read(self.address(index), 0) }
    }

    /// Returns the texels of the surface that parameter `index` names, which the kernel writes and may read.
    ///
    /// # Panics
    /// If the parameter does not have eight bytes.
    #[must_use]
    #[track_caller]
    pub fn draws(&self, index: usize) -> Region {
        Region { is_image: true, ..Region::write(self.address(index), 0) }
    }

    /// Returns the address of a global variable of the kernel's module.
    ///
    /// # Panics
    /// If the module has no global variable of that name.
    #[must_use]
    pub fn global(&self, name: &str) -> u64 {
        self.globals[name]
    }
}

impl Region {
    /// Declares bytes that the kernel reads.
    #[must_use]
    pub fn read(address: u64, bytes: usize) -> Self {
        let kind = AccessKind::Read;
        Self { address, bytes, kind, is_image: false }
    }

    /// Declares bytes that the kernel writes, and may read.
    #[must_use]
    pub fn write(address: u64, bytes: usize) -> Self {
        let kind = AccessKind::Write;
        Self { address, bytes, kind, is_image: false }
    }
}

impl Region {
    fn has(&self, address: u64, bytes: usize) -> bool {
        let end = self.address + self.bytes as u64;
        (self.address..end).contains(&address) && bytes as u64 <= end - address
    }
}

impl Memory<'_> {
    /// Reads bytes from an address.
    ///
    /// # Errors
    /// The fault of an address that lies in no allocation.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Trap> {
        let (place, at) = self.place(address, to.len())?;
        self.state.read(self.call, &place, at, to);
        Ok(())
    }

    /// Writes bytes to an address.
    ///
    /// # Errors
    /// The fault of an address that lies in no allocation.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Trap> {
        let (place, at) = self.place(address, from.len())?;
        let mut around = self.declared.iter().filter(|region| region.has(address, from.len()));
        if around.clone().next().is_some() && around.all(|region| region.kind == AccessKind::Read) {
            self.undeclared(format!("wrote {address:#x}, which is declared as read"));
        }
        self.state.write(self.call, &place, at, from);
        Ok(())
    }

    /// Returns the elements of the declared region that begins at this address.
    ///
    /// # Errors
    /// The fault of an address where no declared region begins.
    pub fn slice<T: Element>(&mut self, address: u64) -> Result<Vec<T>, Trap> {
        let mut bytes = vec![0; self.declared(address)?];
        if bytes.is_empty() || size_of::<T>() == 0 {
            return Ok(Vec::new());
        }
        self.read(address, &mut bytes)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(T::read).collect())
    }

    /// Passes `f` the elements of the declared region that begins at this address, and writes them back.
    ///
    /// # Errors
    /// The fault of an address where no declared region begins.
    pub fn slice_mut<T: Element>(
        &mut self,
        address: u64,
        f: impl FnOnce(&mut [T]),
    ) -> Result<(), Trap> {
        let mut elements = self.slice(address)?;
        f(&mut elements);
        self.write_slice(address, elements)
    }

    /// Writes elements from this address on.
    ///
    /// # Errors
    /// The fault of an address that lies in no allocation.
    pub fn write_slice<T: Element>(&mut self, address: u64, elements: Vec<T>) -> Result<(), Trap> {
        let bytes = bytes_of(&elements);
        if bytes.is_empty() { Ok(()) } else { self.write(address, bytes) }
    }

    /// Returns the size of the declared region that begins at this address.
    fn declared(&mut self, address: u64) -> Result<usize, Trap> {
        let declared = self.declared.iter().find(|region| region.address == address);
        declared.map(|region| region.bytes).ok_or_else(|| {
            self.undeclared(format!("asked for a region at {address:#x}, where none is declared"));
            ILLEGAL
        })
    }

    fn undeclared(&mut self, what: String) {
        let message = format!("the closure of the kernel `{}` {what}", self.kernel);
        self.state.log.violation(ViolationKind::Undeclared, self.call, message);
    }

    /// Reads a word that another stream or the host may be writing.
    ///
    /// # Errors
    /// The fault of an address that lies in no allocation, or is not aligned.
    pub fn read_u32(&mut self, address: u64) -> Result<u32, Trap> {
        if address % 4 != 0 {
            return Err(Trap::Faults(CUDA_ERROR_MISALIGNED_ADDRESS));
        }
        let (place, at) = self.place(address, 4)?;
        let place = place.behind(at);
        let value = self.state.read_value(self.call, &place, 4);
        // An access to freed memory has been reported already.
        Ok(value.unwrap_or(0) as u32)
    }

    /// Returns the memory at an address: a declared region, as it was when the kernel was launched, or else
    /// what is there now.
    fn place(&self, address: u64, bytes: usize) -> Result<(Place, usize), Trap> {
        let end = address.checked_add(bytes as u64);
        let inside = |start: u64, size: usize| {
            address >= start && end.is_some_and(|end| end <= start + size as u64)
        };
        // Handles are spaced more closely than the sizes of the images that they stand for.
        let exact = self.bound.iter().find(|(start, ..)| *start == address);
        let around = || self.bound.iter().find(|(start, size, _)| inside(*start, *size));
        let bound = exact.or_else(around).filter(|(start, size, _)| inside(*start, *size));
        if let Some((start, _, place)) = bound {
            return match *place {
                Place::Pageable(_) | Place::Staged(_) => Err(ILLEGAL),
                ref place => Ok((place.clone(), (address - start) as usize)),
            };
        }
        if let Some((block, offset)) = self.state.pinned.find(address as usize) {
            let has_room = bytes <= self.state.pinned.blocks[&block].size - offset;
            return has_room.then_some((Place::Pinned { block, offset }, 0)).ok_or(ILLEGAL);
        }
        let block = self.state.space.find(address).ok_or(ILLEGAL)?;
        let held = &self.state.space.blocks[&block];
        if matches!(held.phase, Phase::Freed(_)) || !inside(held.address, held.size) {
            return Err(ILLEGAL);
        }
        let offset = (address - held.address) as usize;
        Ok((Place::Device { block, offset }, 0))
    }
}

const ILLEGAL: Trap = Trap::Faults(CUDA_ERROR_ILLEGAL_ADDRESS);

/// A queued launch.
#[derive(Clone)]
pub(crate) struct Run {
    name: String,
    kernel: Kernel,
    arguments: Arguments,
    declared: Vec<Region>,
    bound: Vec<(u64, usize, Place)>,
    /// Textures and surfaces that the kernel uses.
    images: Vec<Id>,
    context: Id,
    /// Whether it ran before, and waits for memory to change.
    pub(super) spun: bool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

impl Run {
    /// Returns the regions that the kernel touches, with their addresses resolved.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (&Region, &Place)> {
        let regions = self.declared.iter().filter(|region| region.bytes > 0);
        regions.zip(self.bound.iter().map(|(_, _, place)| place))
    }
}

impl State {
    /// Prepares a launch of a registered kernel; `None` if no kernel of that name is registered.
    pub(crate) fn prepare(
        &mut self,
        call: &'static str,
        context: Id,
        name: &str,
        arguments: Arguments,
    ) -> Result<Option<Run>, CUresult> {
        let sizes: Vec<usize> = arguments.parameters.iter().map(Vec::len).collect();
        let Some(kernel) = registered(name, &sizes) else {
            return Ok(None);
        };
        let declared = catch_unwind(AssertUnwindSafe(|| (kernel.touches)(&arguments)));
        let mut declared = declared.map_err(|payload| {
            self.report_panic(call, name, &*payload);
            CUDA_ERROR_LAUNCH_FAILED
        })?;
        let (mut bound, mut images) = (Vec::new(), Vec::new());
        for region in declared.iter_mut().filter(|region| region.bytes > 0 || region.is_image) {
            let place = if region.is_image {
                let (id, place, bytes) = self.texels(call, region.address)?;
                images.push(id);
                region.bytes = bytes;
                place
            } else {
                self.device_place(call, region.address, region.bytes)?
            };
            bound.push((region.address, region.bytes, place));
        }
        let name = name.to_owned();
        let run = Run { name, kernel, arguments, declared, bound, images, context, spun: false };
        if self.reaches_all(call, &run) { Ok(Some(run)) } else { Err(CUDA_ERROR_ILLEGAL_ADDRESS) }
    }

    /// Returns whether the context's device has access to all of the memory. Reports memory of another device
    /// to which it has none: a kernel on a real device would fault.
    fn reaches_all(&mut self, call: &'static str, run: &Run) -> bool {
        let mut touched = run.touched();
        let closed = touched.find(|(region, place)| !self.reaches(run.context, region.kind, place));
        let Some((Region { address, .. }, _)) = closed else {
            return true;
        };
        let message = format!(
            "a kernel uses {address:#x}, memory of a device to which its own has no access"
        );
        self.log.violation(ViolationKind::UnknownAddress, call, message);
        false
    }

    fn reaches(&self, context: Id, kind: AccessKind, place: &Place) -> bool {
        let (Some(context), Some(far)) = (self.contexts.get(&context), self.device_of(place))
        else {
            return true;
        };
        let Place::Device { block, offset } = *place else {
            return true;
        };
        let near = context.device;
        if near == far {
            return true;
        }
        if let Some(chunks) = self.virtual_memory.reservations.get(&block) {
            let mut chunks = chunks.iter().filter(|chunk| chunk.range().contains(&offset));
            let least = match kind {
                AccessKind::Read => cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READ,
                _ => cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            return chunks
                .all(|chunk| chunk.access.get(&near).is_some_and(|flags| flags.0 >= least.0));
        }
        match self.space.blocks.get(&block).and_then(|block| self.pools.get(&block.pool?)) {
            Some(pool) => pool.is_open_to(near),
            None => self.access_between(near, far).next().is_some(),
        }
    }

    /// Runs a launch; returns `false` if it spins and has to be run again.
    pub(super) fn run_kernel(&mut self, call: &'static str, run: &mut Run) -> bool {
        if run.images.iter().any(|image| self.images.objects.get(image).is_none()) {
            let message = "its work ran after a texture or a surface was destroyed".to_owned();
            self.log.violation(ViolationKind::UseAfterFree, call, message);
        }
        self.reaches_all(call, run);
        let body = Arc::clone(&run.kernel.body);
        let (context, declared, bound) = (run.context, &*run.declared, &*run.bound);
        let kernel = &*run.name;
        let mut memory = Memory { state: self, call, context, kernel, declared, bound };
        let ended = catch_unwind(AssertUnwindSafe(|| body(&run.arguments, &mut memory)));
        let ended = ended.unwrap_or_else(|payload| {
            self.report_panic(call, &run.name, &*payload);
            Err(Trap::Faults(CUDA_ERROR_LAUNCH_FAILED))
        });
        match ended {
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

    fn report_panic(&mut self, call: &'static str, kernel: &str, payload: &dyn Any) {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a value");
        let message = format!("the closure of the kernel `{kernel}` panicked: {text}");
        self.log.violation(ViolationKind::KernelPanic, call, message);
    }
}
