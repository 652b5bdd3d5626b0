//! Arguments: what a kernel can be given, where it is kept until the launch, and what it touches.

mod image;

use std::ffi::c_void;
use std::ptr;

use cuda_sys::{CUdeviceptr, symbol as cu};

use super::few::Few;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result, check};
use crate::memory::buffer::Buffer;
use crate::memory::device::DeviceMemory;
use crate::memory::ledger::{Access, Ledger, LedgerOf, Touch};
use crate::memory::origin::Origin;
use crate::memory::pinned::PinnedMemory;
use crate::memory::pod::{Pod, bytes_of};
use crate::memory::view::{Slice, SliceMut};
use crate::memory::{Block, Memory};
use crate::peer;

/// What a kernel can be given.
///
/// * Memory that the device can reach, as the address of its first element: `&buffer` and views for
///   what the kernel reads, `&mut buffer` and exclusive views for what it writes. Pinned memory is
///   reached in place; asking for its address costs driver calls of its own.
/// * Bound textures and surfaces.
/// * Values, [`Pod`] or `bool`, of the size that the parameter has; `#[repr(C)]` structures and
///   addresses as `u64` among them.
///
/// References to the host's memory are neither, and do not compile. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given to a kernel",
    note = "kernels take device memory (`&buffer`, `&mut buffer`, views) and `Pod` values"
)]
pub trait Argument<'a>: sealed::Argument<'a> {}

/// Memory that a kernel can reach: `&buffer`, `&mut buffer`, views. Sealed.
#[diagnostic::on_unimplemented(message = "`{Self}` is no memory that a kernel can reach")]
pub trait DeviceVisible<'a>: sealed::DeviceVisible<'a> {}

mod sealed {
    use super::{Arguments, CUdeviceptr, Touched};

    pub trait Argument<'a> {
        #[doc(hidden)]
        fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>);
    }

    pub trait DeviceVisible<'a> {
        /// Enters the memory, and returns where the device finds it.
        #[doc(hidden)]
        fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr;
    }
}

impl<'a, A: sealed::Argument<'a>> Argument<'a> for A {}
impl<'a, A: sealed::DeviceVisible<'a>> DeviceVisible<'a> for A {}

impl<'a, T: Pod> sealed::Argument<'a> for T {
    #[inline]
    fn push(self, arguments: &mut Arguments, _: &mut Touched<'a>) {
        arguments.push(bytes_of(&[self]));
    }
}

impl<'a> sealed::Argument<'a> for bool {
    fn push(self, arguments: &mut Arguments, _: &mut Touched<'a>) {
        arguments.push(&[self.into()]);
    }
}

/// Memory of a kind that devices reach.
trait Reach: Memory {
    /// Where the device of the stream, which is of `context`, finds the byte at `start`.
    fn reach(block: &Block<Self>, start: usize, context: &Context) -> Result<CUdeviceptr>;

    /// The device whose memory it is, if only those reach it that were given access.
    fn confined_to(block: &Block<Self>) -> Option<Device>;
}

impl Reach for DeviceMemory {
    #[inline]
    fn reach(block: &Block<Self>, start: usize, _: &Context) -> Result<CUdeviceptr> {
        Ok(block.address + start as CUdeviceptr)
    }

    #[inline]
    fn confined_to(block: &Block<Self>) -> Option<Device> {
        match &block.keeper {
            Origin::Home(home) => Some(home.device()),
            // Managed, virtual, or shared in some other way: its owner knows.
            Origin::Owned { .. } => None,
        }
    }
}

impl Reach for PinnedMemory {
    fn reach(block: &Block<Self>, start: usize, context: &Context) -> Result<CUdeviceptr> {
        // The address of an empty buffer is no address.
        if block.bytes == 0 {
            return Ok(0);
        }
        let _entered = context.enter_briefly()?;
        let mut address = 0;
        // SAFETY: the pointer is valid for a write; the memory is pinned; flags must be zero.
        check("cuMemHostGetDevicePointer", unsafe {
            cu::cuMemHostGetDevicePointer_v2(&mut address, block.address.0.as_ptr().cast(), 0)
        })?;
        Ok(address + start as CUdeviceptr)
    }

    fn confined_to(_: &Block<Self>) -> Option<Device> {
        None
    }
}

macro_rules! memory {
    ($($memory:ty),* $(,)?) => {$(
        impl<'a, T: Pod, M: Reach> sealed::Argument<'a> for $memory {
            #[inline]
            fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
                let address = sealed::DeviceVisible::touch(self, touched);
                arguments.push(&address.to_ne_bytes());
            }
        }
    )*};
}

memory!(
    &'a Buffer<T, M>,
    &'a mut Buffer<T, M>,
    Slice<'a, T, M>,
    &'a Slice<'_, T, M>,
    SliceMut<'a, T, M>,
    &'a mut SliceMut<'_, T, M>,
);

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for &'a Buffer<T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        self.as_view().touch(touched)
    }
}

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for &'a mut Buffer<T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        let address = touched.reach(self.storage.block(), 0);
        let range = self.storage.block().whole();
        touched.push(Touch {
            ledger: LedgerOf::Sole(self.storage.ledger_mut()),
            range,
            access: Access::Write,
        });
        address
    }
}

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for Slice<'a, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        touched.push(self.read());
        touched.reach(self.block(), self.range().start)
    }
}

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for &'a Slice<'_, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        (*self).touch(touched)
    }
}

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for SliceMut<'a, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        // Still nobody else's, since this value is gone and the borrow is not.
        let view = self.into_view();
        touched.push(Touch {
            access: Access::Write,
            ..view.read()
        });
        touched.reach(view.block(), view.range().start)
    }
}

impl<'a, T: Pod, M: Reach> sealed::DeviceVisible<'a> for &'a mut SliceMut<'_, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        self.reborrow().touch(touched)
    }
}

/// Sixteen bytes of arguments, the strictest alignment that CUDA's own types have.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Unit([u8; UNIT]);

const UNIT: usize = 16;
const EMPTY: Unit = Unit([0; UNIT]);

/// Bytes of the arguments, each beginning at a unit of its own.
pub struct Arguments {
    units: Few<Unit, 16>,
    places: Few<Place, 8>,
}

#[derive(Clone, Copy)]
struct Place {
    // INVARIANT: `size` bytes from this unit on are there.
    unit: usize,
    size: usize,
}

const NOWHERE: Place = Place { unit: 0, size: 0 };

impl Default for Arguments {
    fn default() -> Self {
        Self {
            units: Few::new(|| EMPTY),
            places: Few::new(|| NOWHERE),
        }
    }
}

impl Arguments {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let place = Place {
            unit: self.units.as_slice().len(),
            size: bytes.len(),
        };
        for chunk in bytes.chunks(UNIT) {
            let mut unit = EMPTY;
            unit.0[..chunk.len()].copy_from_slice(chunk);
            self.units.push(unit, || EMPTY);
        }
        self.places.push(place, || NOWHERE);
    }

    /// The size of each, in bytes.
    pub(super) fn sizes(&self) -> impl ExactSizeIterator<Item = usize> {
        self.places.as_slice().iter().map(|place| place.size)
    }

    /// Where each of them is, for as long as nothing is added.
    pub(super) fn pointers(&mut self) -> Few<*mut c_void, 8> {
        let units = self.units.as_mut_slice().as_mut_ptr();
        let mut pointers = Few::new(ptr::null_mut);
        for place in self.places.as_slice() {
            // Behind the last unit for an argument without bytes.
            pointers.push(units.wrapping_add(place.unit).cast(), ptr::null_mut);
        }
        pointers
    }
}

/// What a launch touches.
pub struct Touched<'a> {
    touches: Few<Touch<'a>, 8>,
    /// Stands where no touch is yet.
    nothing: &'a Ledger,
    /// The stream's context.
    context: &'a Context,
    /// Why some memory cannot be reached.
    error: Option<Error>,
}

impl<'a> Touched<'a> {
    pub(super) fn new(nothing: &'a Ledger, context: &'a Context) -> Self {
        Self {
            touches: Few::new(|| filler(nothing)),
            nothing,
            context,
            error: None,
        }
    }

    #[inline]
    fn push(&mut self, touch: Touch<'a>) {
        let nothing = self.nothing;
        self.touches.push(touch, || filler(nothing));
    }

    #[inline]
    fn reach<M: Reach>(&mut self, block: &Block<M>, start: usize) -> CUdeviceptr {
        let reached = match M::confined_to(block) {
            Some(device) if device != self.device() && !peer::has_access(self.device(), device) => {
                Err(self.wrong(device))
            }
            _ => M::reach(block, start, self.context),
        };
        reached.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            0
        })
    }

    /// A texture or surface, which its own device alone knows.
    fn object(&mut self, device: Device, touches: [Touch<'a>; 2]) {
        if device != self.device() {
            let error = self.wrong(device);
            self.error.get_or_insert(error);
        }
        for touch in touches {
            self.push(touch);
        }
    }

    #[inline]
    fn device(&self) -> Device {
        self.context.device()
    }

    fn wrong(&self, memory: Device) -> Error {
        Error::WrongDevice {
            op: "cuLaunchKernelEx",
            memory: memory.ordinal(),
            stream: self.device().ordinal(),
        }
    }

    /// Refuses a launch that was given memory which its device cannot reach.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Touch<'a>] {
        self.touches.as_mut_slice()
    }
}

fn filler(ledger: &Ledger) -> Touch<'_> {
    Touch {
        ledger: LedgerOf::Shared(ledger),
        range: 0..0,
        access: Access::Read,
    }
}
