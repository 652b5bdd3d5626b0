//! Existing host memory, pinned while it is needed.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, RangeBounds};

use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::host::pinned::{HostAddress, PinnedBacking, PinnedBuffer, PinnedSlice, PinnedSliceMut};
use crate::host::pinning::{REGISTER, pin};
use crate::host::stable_host::{ReadOnly, StableHost, StableHostMut};
use crate::memory::{Block, Buffer, Storage, views};
use crate::process::{Contained, deferred, driver, held};
use crate::util::flags::flags;
use crate::util::{OnDrop, debug_by};
use crate::wait::future::Ready;

flags! {
    /// How memory is registered: the flags of `cuMemHostRegister`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Registered, pinned::RegisterFlags};
    ///
    /// let flags = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
    /// let host = Registered::new(&context, vec![0u32; 1024], flags)?;
    /// let address = host.device_ptr()?; // for a kernel
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    RegisterFlags {
        /// Pinned for every context: `CU_MEMHOSTREGISTER_PORTABLE`.
        PORTABLE = cuda_sys::CU_MEMHOSTREGISTER_PORTABLE;
        /// Devices can access it in place, see [`PinnedBuffer::device_ptr`]:
        /// `CU_MEMHOSTREGISTER_DEVICEMAP`.
        MAPPED = cuda_sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        /// Devices only read it, see [`Registered::read_only`]: `CU_MEMHOSTREGISTER_READ_ONLY`.
        READ_ONLY = cuda_sys::CU_MEMHOSTREGISTER_READ_ONLY;
    }
}

/// Existing host memory, pinned where it is: `cuMemHostRegister`. The value owns the memory.
///
/// It dereferences to a [`PinnedBuffer`], for all methods that neither change the elements nor take the
/// buffer. Copies and kernels accept it like a `PinnedBuffer`. Dropping it waits for the work that uses
/// it, unregisters the memory, and drops the owner; [`into_inner`](Self::into_inner) returns the owner
/// instead. If the work cannot be proven complete, the owner is leaked and the failure reported: the
/// memory is never freed under a copy.
///
/// A [graph](crate::Graph) that uses it must be lent it at each launch. If the value is dropped, the
/// graph keeps the memory, but can no longer be launched. The last such graph ends the registration on
/// a thread of this crate.
///
/// The driver pins whole pages, and may refuse memory that shares a page with an existing registration.
/// To register several blocks, align them to pages.
///
/// Registering costs about as much as copying the memory once. It pays for memory that is copied
/// often; [`Stream::upload`](crate::Stream::upload) suits the rest.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Registered, pinned::RegisterFlags};
///
/// let values = vec![1.0f32; 1 << 20];
/// let host = Registered::new(stream.context(), values, RegisterFlags::PORTABLE)?;
/// let mut buffer = stream.alloc(1 << 20)?;
/// stream.upload(&host, &mut buffer)?; // returns at once
/// let values: Vec<f32> = host.into_inner()?; // waits
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Registered<H: StableHost> {
    // INVARIANT: taken only by `Drop` and `into_inner`, which do not use it afterwards.
    parts: ManuallyDrop<Parts<H>>,
}

struct Parts<H: StableHost> {
    // INVARIANT: the buffer is that of `host`'s elements. Devices and the host write them only if `H`
    // is `StableHostMut`, since only the exclusive views of such an `H` write, and everything else
    // hands the buffer out for shared use only.
    buffer: PinnedBuffer<H::Element>,
    // Moving a `Box` or `Vec` asserts that nothing else points to its contents, but the device does.
    // `MaybeUninit` makes no such assertion.
    // INVARIANT: initialised.
    host: MaybeUninit<H>,
}

impl<H: StableHost> Parts<H> {
    /// Unregisters the memory and drops its owner, or leaks the owner if a device may still use the
    /// memory. If other code captures the stream of the memory's last work, does so later.
    fn end(mut self) {
        match self.buffer.storage.free_or_give_up() {
            // SAFETY: initialised, by the invariant, and not used again.
            Some(true) => drop(Contained::new(unsafe { self.host.assume_init() })),
            Some(false) => {}
            None => held::keep(move || self.end()),
        }
    }

    /// Implements the drop of the value. Memory that graphs use is left to the last of them, whose drop
    /// neither waits nor runs code of the owner.
    fn leave(self) {
        let ledger = &self.buffer.storage.block().ledger;
        // In a forked child, a thread that exists only in the parent may hold the lock of a shared
        // ledger.
        let in_graphs = !driver::is_gone() && ledger.is_in_graphs();
        let shared = ledger.shared().filter(|_| in_graphs).cloned();
        let end = move || {
            self.end();
            held::retry();
        };
        match shared {
            Some(shared) => shared.take_over(OnDrop::new(|| deferred::run_elsewhere(end))),
            None => deferred::run_or_defer(end),
        }
    }
}

impl<H: StableHost> Drop for Registered<H> {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        parts.leave();
    }
}

/// # Registering
impl<H: StableHost> Registered<H> {
    /// Registers memory: `cuMemHostRegister_v2`; no driver call if the memory is empty.
    ///
    /// # Errors
    /// [`Error::Invalid`], also for `READ_ONLY`, which [`Registered::read_only`] accepts; the driver's,
    /// among them `HOST_MEMORY_ALREADY_REGISTERED`. Each error returns the owner.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Registered, pinned::RegisterFlags};
    ///
    /// let values = vec![1.0f32; 1 << 20]; // in memory as any other
    /// let registered = Registered::new(stream.context(), values, RegisterFlags::PORTABLE)?;
    /// let mut buffer = stream.alloc(registered.len())?;
    /// stream.upload(&registered, &mut buffer)?; // asynchronous
    /// let values: Vec<f32> = registered.into_inner()?; // waits for the copy
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostRegister", "cudaHostRegister"))]
    pub fn new(context: &Context, host: H, flags: RegisterFlags) -> Result<Self, Rejected<H>> {
        let known = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
        let why = "unknown flags; there are PORTABLE and MAPPED, and `read_only` for READ_ONLY";
        let checked = Error::unless(known.contains(flags), REGISTER, why);
        let ((), host) = Rejected::unless(checked, host)?;
        Self::register(context, host, flags)
    }

    fn register(context: &Context, host: H, flags: RegisterFlags) -> Result<Self, Rejected<H>> {
        let mut host = MaybeUninit::new(host);
        // SAFETY: initialised in the line above.
        let elements = unsafe { host.assume_init_mut() }.elements();
        let len = elements.len();
        let bytes = len * size_of::<H::Element>();
        let address = HostAddress(elements.cast());
        if let Err(error) = pin(context, address, bytes, flags) {
            // SAFETY: initialised above. The driver has not registered its elements, unless the context
            // is lost, or another owner has registered them, or cleans up once its own call returns.
            return Err(Rejected::new(error, unsafe { host.assume_init() }));
        }
        let block = Block::unused(address, bytes, PinnedBacking::Registered(context.clone()));
        let buffer = Buffer::from_storage(Storage::new(block), len);
        Ok(Self { parts: ManuallyDrop::new(Parts { buffer, host }) })
    }

    /// Waits, without blocking, for all work that uses the elements. Dropping the value and
    /// [`into_inner`](Self::into_inner) then wait for no such work. They may still wait for copies that
    /// own memory on the same pages; and the driver, when it unregisters the memory, may wait for work
    /// of devices.
    pub fn ready_mut(&mut self) -> Ready<'_> {
        self.parts.buffer.ready_mut()
    }

    /// Waits for the work that uses the memory, unregisters the memory and returns its owner:
    /// `cuMemHostUnregister`.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a graph uses the memory, and the errors of the wait; the value is then
    /// unchanged. The driver's if the call that unregisters the memory fails; the value is then empty:
    /// see [`Error::GivenUp`]. The owner is then leaked, since its memory may stay pinned permanently.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Registered, pinned::RegisterFlags};
    ///
    /// let buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// let mut back = Registered::new(stream.context(), vec![1u32; 1000], RegisterFlags::NONE)?;
    /// stream.download(&buffer, &mut back)?;
    /// assert_eq!(back.into_inner()?, [0; 1000]); // the vector, as any other again
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostUnregister", "cudaHostUnregister"))]
    pub fn into_inner(mut self) -> Result<H, Rejected<Self>> {
        let ((), this) = Rejected::unless(self.parts.buffer.free(), self)?;
        let mut this = ManuallyDrop::new(this);
        // SAFETY: the field is not used again, since `this` is not dropped.
        let parts = unsafe { ManuallyDrop::take(&mut this.parts) };
        // SAFETY: initialised, by the invariant; nothing uses its elements any more.
        Ok(unsafe { parts.host.assume_init() })
    }

    /// Waits for the work that uses the memory, unregisters the memory and drops its owner.
    ///
    /// # Errors
    /// Those of [`Registered::into_inner`].
    #[doc(alias("cuMemHostUnregister", "cudaHostUnregister"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        self.into_inner().map(drop)
    }
}

type TwoViews<'a, T> = (PinnedSliceMut<'a, T>, PinnedSliceMut<'a, T>);

/// # Exclusive views
impl<H: StableHostMut> Registered<H> {
    /// Waits for all copies that use the elements, and returns the elements for writing.
    ///
    /// # Errors
    /// The driver's errors about those copies; [`Error::InCallback`] in a host function, unless the
    /// copies are known to be done; [`Error::NotCapturable`] while such a copy is being captured.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Registered, pinned::RegisterFlags};
    ///
    /// let mut input = Registered::new(stream.context(), vec![0u32; 100], RegisterFlags::NONE)?;
    /// let mut buffer = stream.alloc(100)?;
    /// for step in 0..3 {
    ///     input.as_mut_slice()?.fill(step); // waits for the copy before
    ///     stream.upload(&input, &mut buffer)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> Result<&mut [H::Element]> {
        self.parts.buffer.as_mut_slice()
    }

    /// Returns an exclusive view of all elements.
    pub fn as_view_mut(&mut self) -> PinnedSliceMut<'_, H::Element> {
        self.parts.buffer.as_view_mut()
    }

    /// Returns an exclusive view of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<PinnedSliceMut<'_, H::Element>> {
        self.parts.buffer.slice_mut(range)
    }

    /// Returns two exclusive views, of the elements before `mid` and of the rest; see
    /// [`SliceMut::split_at_mut`](crate::SliceMut::split_at_mut).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    pub fn split_at_mut(&mut self, mid: usize) -> Result<TwoViews<'_, H::Element>> {
        self.parts.buffer.split_at_mut(mid)
    }

    /// Returns consecutive exclusive views of `len` elements each; see
    /// [`SliceMut::chunks_mut`](crate::SliceMut::chunks_mut).
    ///
    /// # Errors
    /// [`Error::Invalid`] if `len` is zero.
    pub fn chunks_mut(
        &mut self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = PinnedSliceMut<'_, H::Element>>> {
        self.parts.buffer.chunks_mut(len)
    }
}

/// # Memory that devices only read
impl<H: StableHost> Registered<ReadOnly<H>> {
    /// Registers memory that devices only read: adds `READ_ONLY` to the flags. The process itself need
    /// not be able to write the memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device without support for it; those of [`Registered::new`].
    pub fn read_only(
        context: &Context,
        host: H,
        flags: RegisterFlags,
    ) -> Result<Self, Rejected<H>> {
        let known = RegisterFlags::PORTABLE | RegisterFlags::MAPPED | RegisterFlags::READ_ONLY;
        let why = "unknown flags; there are PORTABLE, MAPPED and READ_ONLY";
        let supported = cuda_sys::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        let feature = "registering memory that devices only read";
        let checked = Error::unless(known.contains(flags), REGISTER, why)
            .and_then(|()| context.device().require(supported, feature));
        let ((), host) = Rejected::unless(checked, host)?;
        Self::register(context, ReadOnly(host), flags | RegisterFlags::READ_ONLY)
            .map_err(|rejected| rejected.map(|ReadOnly(host)| host))
    }
}

impl<H: StableHost> Deref for Registered<H> {
    type Target = PinnedBuffer<H::Element>;

    fn deref(&self) -> &PinnedBuffer<H::Element> {
        &self.parts.buffer
    }
}

views! {
    ['a, H: StableHost] &'a Registered<H> => PinnedSlice<'a, H::Element>: |it| it.as_view();
    ['a, H: StableHost] &'a mut Registered<H> => PinnedSlice<'a, H::Element>: |it| it.as_view();
    ['a, H: StableHostMut] &'a mut Registered<H> => PinnedSliceMut<'a, H::Element>:
        |it| it.as_view_mut();
}

debug_by! { [H: StableHost] Registered<H>: |it| "Registered"(**it) }
