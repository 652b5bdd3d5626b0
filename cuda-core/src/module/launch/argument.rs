//! Arguments: what kernels can be passed, where it is stored until the launch, and what it accesses.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;

use cuda_sys::CUdeviceptr;

use super::OP;
use crate::alloc::PitchedBuffer;
use crate::context::{Confined, Context, Crossing, peer};
use crate::device::Device;
use crate::error::{Error, Result, WrongContext};
use crate::host::{PinnedMemory, Registered, StableHost, StableHostMut, device_ptr_of};
use crate::image::BoundObject;
use crate::image::texture::object::ObjectKind;
use crate::memory::{Block, Buffer, DeviceMemory, Memory, SharedSlice, Slice, SliceMut};
use crate::module::{Function, kernel};
use crate::timeline::ledger::{Access, Touch};
use crate::timeline::recording::{Condition, Reached};
use crate::types::{Pod, bytes_of};
use crate::util::InlineVec;

/// What can be passed to a kernel.
///
/// * Memory that the device can reach, as the address of its first element: `&buffer` and views for
///   what the kernel reads, `&mut buffer` and exclusive views for what it writes. Pinned memory is
///   accessed in place; for registered and [write-combined](crate::PinnedBuffer::write_combined) memory,
///   looking up the address costs driver calls. An
///   [`Option`] of a view, or of a reference to a buffer, is null for [`None`]. A [`PitchedBuffer`] is
///   the address of its first row.
/// * Bound textures and surfaces; a [`Condition`] of a graph, by reference; a
///   [`TensorMap`](crate::tensor_map::TensorMap), also by reference.
/// * Values, [`Pod`] or `bool`, of the parameter's size; among them `#[repr(C)]` structures and
///   addresses as `u64`.
/// * A type of your own that is passed as one of the above.
///
/// References to host memory do not compile.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// # const PTX: &str = "";
/// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("axpy")?;
/// let (x, mut y) = (stream.alloc_zeroed::<f32>(1024)?, stream.alloc_zeroed::<f32>(1024)?);
/// // axpy(float a, const float *x, float *y, unsigned n)
/// let launch = stream
///     .kernel(&function)
///     .elements(512)
///     .arg(2.0f32)
///     .arg(x.slice(512..)?)
///     .arg(&mut y)
///     .arg(512u32);
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// A tensor type can be passed as `&tensor` and `&mut tensor`. This needs no `unsafe`, since the
/// argument borrows the tensor:
///
/// ```
/// use cuda_core::{Argument, DeviceBuffer, DeviceSlice, DeviceSliceMut};
///
/// struct Tensor {
///     elements: DeviceBuffer<f32>,
///     shape: Vec<usize>,
/// }
///
/// impl<'a> Argument<'a> for &'a Tensor {
///     type As = DeviceSlice<'a, f32>;
///     fn into_argument(self) -> Self::As {
///         self.elements.as_view()
///     }
/// }
///
/// impl<'a> Argument<'a> for &'a mut Tensor {
///     type As = DeviceSliceMut<'a, f32>;
///     fn into_argument(self) -> Self::As {
///         self.elements.as_view_mut()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given to a kernel",
    note = "kernels take device memory (`&buffer`, `&mut buffer`, views) and `Pod` values",
    note = "host memory is copied to the device first: `stream.upload_new(&vec)`",
    note = "a smart pointer is dereferenced by hand: `.arg(&*buffer)`",
    note = "declare a struct of your own by `cuda_core::pod! {{ struct P {{ .. }} }}`"
)]
pub trait Argument<'a> {
    /// The memory or value that the kernel is passed: a type of this crate, or a [`Pod`].
    type As: sealed::PushArgument<'a>;

    /// Returns what the kernel is passed.
    fn into_argument(self) -> Self::As;
}

/// Memory that a kernel can reach: `&buffer`, `&mut buffer`, views. Sealed.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// # const PTX: &str = "";
/// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("walk")?;
/// let rows = [stream.alloc_zeroed::<f32>(64)?, stream.alloc_zeroed::<f32>(64)?];
/// let mut addresses = stream.alloc(2)?;
/// stream.upload(&[rows[0].as_raw(), rows[1].as_raw()], &mut addresses)?;
/// let launch = stream.kernel(&function).block(1).arg(&addresses).uses(&rows[0]).uses(&rows[1]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(message = "a kernel cannot reach `{Self}`")]
pub trait DeviceVisible<'a>: sealed::TouchMemory<'a> {}

pub(in crate::module) mod sealed {
    use super::{Arguments, CUdeviceptr, Touched};

    pub trait PushArgument<'a> {
        #[doc(hidden)]
        fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>);
    }

    pub trait TouchMemory<'a> {
        /// Adds the memory to `touched`. Returns its address on the device.
        #[doc(hidden)]
        fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr;
    }
}

#[diagnostic::do_not_recommend]
impl<'a, A: sealed::PushArgument<'a>> Argument<'a> for A {
    type As = A;

    #[inline]
    fn into_argument(self) -> A {
        self
    }
}

impl<'a, A: sealed::TouchMemory<'a>> DeviceVisible<'a> for A {}

#[diagnostic::do_not_recommend]
impl<'a, T: Pod> sealed::PushArgument<'a> for T {
    #[inline]
    fn push(self, arguments: &mut Arguments, _: &mut Touched<'a>) {
        arguments.push(bytes_of(&[self]));
    }
}

impl<'a> sealed::PushArgument<'a> for bool {
    fn push(self, arguments: &mut Arguments, _: &mut Touched<'a>) {
        arguments.push(&[self.into()]);
    }
}

/// Memory of a kind that devices can reach.
pub(in crate::module) trait Reach: Memory {
    /// Returns the address of the byte at `start` for the stream's device; `context` is the
    /// stream's.
    fn reach(block: &Block<Self>, start: usize, context: &Context) -> Result<CUdeviceptr>;
}

impl Reach for DeviceMemory {
    #[inline]
    fn reach(block: &Block<Self>, start: usize, _: &Context) -> Result<CUdeviceptr> {
        Ok(block.address + start as CUdeviceptr)
    }
}

impl Reach for PinnedMemory {
    fn reach(block: &Block<Self>, start: usize, context: &Context) -> Result<CUdeviceptr> {
        Ok(device_ptr_of(block, context)? + start as CUdeviceptr)
    }
}

/// Lets memory or an image object be an argument: passes its address or handle, and notes it by
/// [`TouchMemory`](sealed::TouchMemory).
macro_rules! memory {
    ($([$($kind:tt)*] $memory:ty;)*) => {$(
        impl<'a, $($kind)*> sealed::PushArgument<'a> for $memory {
            #[inline]
            fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
                let address = sealed::TouchMemory::touch(self, touched);
                arguments.push(&address.to_ne_bytes());
            }
        }
    )*};
}

memory! {
    [T: Pod, M: Reach] Slice<'a, T, M>;
    [T: Pod, M: Reach] SliceMut<'a, T, M>;
    [T: Pod, M: Reach] Option<Slice<'a, T, M>>;
    [T: Pod, M: Reach] Option<SliceMut<'a, T, M>>;
    [T: Pod, M: Reach, X] Option<&'a Buffer<T, M, X>>;
    [T: Pod, M: Reach, X] Option<&'a mut Buffer<T, M, X>>;
    [K: ObjectKind] BoundObject<'a, K>;
}

/// Lets memory be an argument, noted like the view that the given method makes of it, and declares
/// what a typed kernel may do with it.
macro_rules! viewed {
    ($([$($kind:tt)*] $memory:ty: $view:ident, $given:ident;)*) => {$(
        memory! { [T: Pod, $($kind)*] $memory; }
        impl<'a, T: Pod, $($kind)*> kernel::Sealed for $memory {}
        impl<'a, T: Pod, $($kind)*> kernel::$given<T> for $memory {}

        impl<'a, T: Pod, $($kind)*> sealed::TouchMemory<'a> for $memory {
            #[inline]
            fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
                sealed::TouchMemory::touch(self.$view(), touched)
            }
        }
    )*};
}

viewed! {
    [M: Reach, X] &'a Buffer<T, M, X>: as_view, Reads;
    [M: Reach, X] &'a mut Buffer<T, M, X>: as_view_mut, Writes;
    [M: Reach] &'a Slice<'_, T, M>: clone, Reads;
    [M: Reach] &'a SliceMut<'_, T, M>: as_view, Reads;
    [M: Reach] &'a SharedSlice<T, M>: as_view, Reads;
    [] &'a PitchedBuffer<T>: as_bytes, Reads;
    [] &'a mut PitchedBuffer<T>: as_bytes_mut, Writes;
    [M: Reach] &'a mut SliceMut<'_, T, M>: reborrow, Writes;
    [H: StableHost<Element = T>] &'a Registered<H>: as_view, Reads;
    [H: StableHostMut<Element = T>] &'a mut Registered<H>: as_view_mut, Writes;
}

impl<'a, K: ObjectKind> sealed::TouchMemory<'a> for BoundObject<'a, K> {
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        let BoundObject { handle, context, touches, .. } = self;
        touched.object(context, touches);
        handle
    }
}

impl<'a> sealed::PushArgument<'a> for &'a Condition {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        if self.context() != touched.context {
            touched.fail(Error::from(WrongContext { op: OP, what: "a condition".into() }));
        }
        touched.touches.push(|| self.touch());
        touched.conditions.push(self.made_in());
        arguments.push(&self.as_raw().to_ne_bytes());
    }
}

impl<'a, T: Pod, M: Reach> sealed::TouchMemory<'a> for Slice<'a, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        touched.touches.push(|| self.read());
        touched.reach(self.block(), self.range().start, Access::Read)
    }
}

impl<'a, T: Pod, M: Reach> sealed::TouchMemory<'a> for SliceMut<'a, T, M> {
    #[inline]
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        let view = self.as_view();
        let address = touched.reach(view.block(), view.range().start, Access::Write);
        touched.touches.push(|| self.into_touch());
        address
    }
}

/// A pointer that may be null.
impl<'a, A: sealed::TouchMemory<'a>> sealed::TouchMemory<'a> for Option<A> {
    fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
        self.map_or(0, |memory| memory.touch(touched))
    }
}

/// Sixteen bytes of arguments, the strictest alignment of CUDA's own types.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Unit([u8; UNIT]);
const UNIT: usize = 16;

/// Bytes of the arguments; each argument begins at a new unit.
#[expect(missing_debug_implementations, reason = "only the seal is public")]
pub struct Arguments {
    units: InlineVec<Unit, 16>,
    places: InlineVec<ArgumentPlace, 8>,
}

#[derive(Clone, Copy)]
struct ArgumentPlace {
    // INVARIANT: `size` bytes exist, beginning at this unit.
    unit: usize,
    size: usize,
}

/// One pointer per parameter.
pub(super) type Pointers = InlineVec<*mut c_void, 8>;

impl Arguments {
    #[inline]
    pub(super) fn new() -> Self {
        Self { units: InlineVec::new(), places: InlineVec::new() }
    }

    #[inline]
    pub(in crate::module) fn push(&mut self, bytes: &[u8]) {
        let place = ArgumentPlace { unit: self.units.as_slice().len(), size: bytes.len() };
        for chunk in bytes.chunks(UNIT) {
            self.units.push(|| {
                let mut unit = Unit([0; UNIT]);
                unit.0[..chunk.len()].copy_from_slice(chunk);
                unit
            });
        }
        self.places.push(|| place);
    }

    /// The number of arguments.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.places.as_slice().len()
    }

    /// The size of each argument, in bytes.
    pub(super) fn sizes(&self) -> impl ExactSizeIterator<Item = usize> + Clone {
        self.places.as_slice().iter().map(|place| place.size)
    }

    /// Appends a pointer to each argument, valid until another argument is added.
    #[inline]
    pub(super) fn point(&mut self, pointers: &mut Pointers) {
        let units = self.units.as_mut_slice().as_mut_ptr();
        for place in self.places.as_slice() {
            // For an argument without bytes the pointer may lie just beyond the last unit.
            pointers.push(|| units.wrapping_add(place.unit).cast());
        }
    }
}

/// The memory that a launch accesses.
#[expect(missing_debug_implementations, reason = "only the seal is public")]
pub struct Touched<'a> {
    touches: InlineVec<Touch<'a>, 8>,
    /// The stream's context.
    context: &'a Context,
    /// Memory of other devices that the context needs access to, each with the first parameter that
    /// uses it.
    far: Vec<(Confined, Parameter)>,
    /// The captures of the conditions that the kernel may set.
    conditions: Vec<u64>,
    /// The first error of memory that cannot be reached, with its parameter.
    error: Option<Box<(Error, Parameter)>>,
    /// The argument that is being added.
    pub(super) by: Parameter,
}

/// The index of a parameter, from zero; [`None`] for memory that is not an argument.
type Parameter = Option<usize>;

/// Names an argument in errors.
#[cold]
fn named(by: Parameter, function: &Function) -> Cow<'static, str> {
    let kernel = function.name();
    match by {
        Some(index) => format!("argument {index} of `{kernel}`").into(),
        None => format!("memory that `{kernel}` uses").into(),
    }
}

fn wrong_context() -> Error {
    Error::from(WrongContext { op: OP, what: "memory".into() })
}

impl<'a> Touched<'a> {
    #[inline]
    pub(super) fn new(context: &'a Context) -> Self {
        Self {
            touches: InlineVec::new(),
            context,
            far: Vec::new(),
            conditions: Vec::new(),
            error: None,
            by: None,
        }
    }

    #[inline]
    fn reach<M: Reach>(&mut self, block: &Block<M>, start: usize, access: Access) -> CUdeviceptr {
        // The common case: memory of the stream's own context.
        if !ptr::eq(M::context_of(&block.backing).inner(), self.context.inner()) {
            self.reach_from_elsewhere(block, access);
        }
        M::reach(block, start, self.context).unwrap_or_else(|error| {
            self.fail(error);
            0
        })
    }

    #[cold]
    fn reach_from_elsewhere<M: Reach>(&mut self, block: &Block<M>, access: Access) {
        let confined = M::confined_to(block).filter(|memory| !memory.is_at_home_in(self.context));
        let Some(memory) = confined else {
            if M::is_closed_to(block, self.device(), access) {
                self.fail(self.wrong(M::context_of(&block.backing).device()));
            }
            return;
        };
        if memory.device == self.device() {
            self.fail(wrong_context());
        } else if M::is_closed_to(block, self.device(), access) {
            self.fail(self.wrong(memory.device));
        } else if self.far.iter().all(|(far, _)| *far != memory) {
            self.far.push((memory, self.by));
        }
    }

    /// Adds a texture or surface, which only its own device can use, even with peer access.
    fn object(&mut self, context: &Context, touches: [Touch<'a>; 2]) {
        if context.device() != self.device() {
            self.fail(self.wrong(context.device()));
        } else if !Confined::to_context(context).is_at_home_in(self.context) {
            self.fail(wrong_context());
        }
        touches.into_iter().for_each(|touch| self.touches.push(|| touch));
    }

    #[inline]
    fn device(&self) -> Device {
        self.context.device()
    }

    fn wrong(&self, memory: Device) -> Error {
        Error::wrong_device(OP, memory.ordinal(), self.device().ordinal())
    }

    #[cold]
    fn fail(&mut self, error: Error) {
        let by = self.by;
        self.error.get_or_insert_with(|| Box::new((error, by)));
    }

    /// Refuses a launch without the access it needs to other devices' memory. Returns guards to be
    /// held while the launch is enqueued, so that the access is not revoked meanwhile.
    #[inline]
    pub(super) fn cross(&self, function: &Function) -> Result<Vec<Crossing>> {
        if self.far.is_empty() { Ok(Vec::new()) } else { self.cross_all(function) }
    }

    /// Refuses the launch unless it is a part of every capture that its conditions were made in.
    #[inline]
    pub(super) fn require_conditions(
        &self,
        op: &'static str,
        is_part: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let why = "a condition is set by kernels of the capture that it was made in, and by no others: `Graph::extend` \
                   is a capture of its own";
        Error::unless(self.conditions.iter().all(|capture| is_part(*capture)), op, why)
    }

    /// Returns whether no memory is of another device.
    pub(super) fn is_near(&self) -> bool {
        self.far.is_empty()
    }

    #[cold]
    fn cross_all(&self, function: &Function) -> Result<Vec<Crossing>> {
        let crossing = |&(far, by): &(Confined, Parameter)| {
            let crossing = peer::crossing(self.device(), far.device);
            if peer::has_access(self.context, far) {
                return Ok(crossing);
            }
            Err(self.wrong(far.device).of_argument(named(by, function)))
        };
        self.far.iter().map(crossing).collect()
    }

    /// Refuses a launch that was given memory which its device cannot reach.
    #[inline]
    pub(super) fn check(&self, function: &Function) -> Result<()> {
        match self.error.as_deref() {
            None => Ok(()),
            Some((error, by)) => Err(error.clone().of_argument(named(*by, function))),
        }
    }

    /// Returns what the launch touches, and a closure for what it reaches by peer access, called
    /// while it [crosses](Self::cross).
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut [Touch<'a>], impl FnOnce() -> Vec<Reached>) {
        let (context, far) = (self.context, &self.far);
        let reached = || far.iter().map(|(far, _)| Reached::captured(context, *far)).collect();
        (self.touches.as_mut_slice(), reached)
    }
}
