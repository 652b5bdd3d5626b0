//! The shape and the arguments of a launch.

use super::argument::sealed::{PushArgument as _, TouchMemory as _};
use super::{Argument, DeviceVisible, Dimensions, Launch, Prepared};
use crate::stream::{Stream, StreamKind};

/// Threads per block that [`Launch::elements`] and [`Launch::elements_2d`] choose: whole warps,
/// each along a row.
const BLOCK: u32 = 256;
const BLOCK_2D: (u32, u32) = (32, 8);

/// Returns the number of blocks that the elements need. A number that does not fit becomes
/// `u32::MAX`, which exceeds any device's limit and is refused; so are blocks without threads.
fn blocks(elements: usize, threads: u32) -> u32 {
    u32::try_from(elements.div_ceil(threads.max(1) as usize)).unwrap_or(u32::MAX)
}

impl Prepared<'_> {
    /// Returns whether there are no elements to launch for. The grid of one block is then not
    /// launched.
    pub(super) fn is_empty(&self) -> bool {
        self.elements.is_some_and(|elements| elements.contains(&0))
    }

    /// Sets the block size, and as many blocks as the elements need, if elements are set.
    #[inline]
    fn set_block(&mut self, threads: Dimensions) {
        self.shape.block = threads;
        if let Some([width, height]) = self.elements {
            let (x, y) = (blocks(width, threads.x), blocks(height, threads.y));
            self.shape.grid = if self.is_empty() { Dimensions::ONE } else { (x, y).into() };
        }
    }
}

/// # Shape and arguments
impl<'a, K: StreamKind> Launch<'a, K> {
    /// Sets the number of blocks: `grid(8)`, `grid((8, 8))`, `grid((8, 8, 2))`; one by default.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let mut image = stream.alloc_zeroed::<f32>(1024 * 768)?;
    /// // SAFETY: scale(float *x) is compiled for images of 1024 by 768 elements, a thread for each.
    /// unsafe { stream.kernel(&function).grid((64, 48)).block((16, 16)).arg(&mut image).launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn grid(mut self, blocks: impl Into<Dimensions>) -> Self {
        self.prepared.shape.grid = blocks.into();
        self.prepared.elements = None;
        self
    }

    /// Sets the threads per block: `block(256)`, `block((16, 16))`, `block((8, 8, 4))`; one thread
    /// is `block(1)`. Either this or [`Launch::elements`] must be called. With both, in either
    /// order, there are as many blocks of this size as the elements need.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let threads = function.block_size(None, 0)?.threads; // of the fullest occupancy
    /// let mut x = stream.alloc_zeroed::<f32>(threads as usize)?;
    /// // SAFETY: scale(float *x) reads and writes an element of `x` for each thread.
    /// unsafe { stream.kernel(&function).block(threads).arg(&mut x).launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn block(mut self, threads: impl Into<Dimensions>) -> Self {
        self.prepared.set_block(threads.into());
        self
    }

    /// Launches at least as many threads as elements: blocks of 256 threads in one dimension, or of
    /// the size that [`Launch::block`] sets. The kernel must ignore threads beyond the last
    /// element. With zero elements, [`Launch::launch`] checks the arguments, enqueues nothing and
    /// succeeds, as copies of no elements do; [`Launch::grid`] of zero blocks is an error.
    /// [`GraphExec::set_kernel`](crate::GraphExec::set_kernel) refuses both.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # let function = cuda_core::Module::from_ptx(&context, PTX)?.function("scale")?;
    /// let mut x = stream.alloc_zeroed::<f32>(1000)?;
    /// // SAFETY: scale(float *x, unsigned n) leaves the elements from the `n`th on alone: the four
    /// // blocks have 1024 threads.
    /// unsafe { stream.kernel(&function).elements(x.len()).arg(&mut x).arg(1000u32).launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("for_num_elems"))]
    pub fn elements(self, elements: usize) -> Self {
        self.covering([elements, 1], BLOCK.into())
    }

    /// Launches at least as many threads as elements: `width` along `x`, in `height` rows along
    /// `y`. The blocks have 32 by 8 threads, or the size that [`Launch::block`] sets. The kernel
    /// must ignore threads beyond the width or the height. CUDA's limit of 65,535 blocks along `y`
    /// allows 524,280 rows. Otherwise as [`Launch::elements`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let (width, height) = (1000, 768);
    /// let mut image = stream.alloc_zeroed::<f32>(width * height)?;
    /// let launch = stream.kernel(&function).elements_2d(width, height);
    /// let mut launch = launch.arg(&mut image).arg(width as u32).arg(height as u32);
    /// // SAFETY: scale(float *x, unsigned width, unsigned height) leaves all else alone.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn elements_2d(self, width: usize, height: usize) -> Self {
        self.covering([width, height], BLOCK_2D.into())
    }

    /// Sets the grid that covers the elements, by blocks of the size `otherwise` unless one is set.
    #[inline]
    fn covering(mut self, elements: [usize; 2], otherwise: Dimensions) -> Self {
        self.prepared.elements = Some(elements);
        // `otherwise` is a constant, so the compiler divides by it with a shift.
        match self.prepared.shape.block {
            Dimensions::NONE => self.prepared.set_block(otherwise),
            threads => self.prepared.set_block(threads),
        }
        self
    }

    /// Sets the dynamic shared memory in bytes per block. More than 48 KiB must be allowed first,
    /// with [`Function::set_max_dynamic_shared`](crate::Function::set_max_dynamic_shared).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let bytes = 100 << 10;
    /// function.set_max_dynamic_shared(bytes)?;
    /// let mut launch = stream.kernel(&function).grid(16).block(256).dynamic_shared(bytes);
    /// // SAFETY: the kernel has no parameter and touches its shared memory alone.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("shared_mem_bytes", "sharedMemBytes"))]
    pub fn dynamic_shared(mut self, bytes: usize) -> Self {
        self.prepared.shape.dynamic_shared = bytes;
        self
    }

    /// Adds the next argument: a buffer or view that the kernel reads (`&buffer`) or writes
    /// (`&mut buffer`), or a value. See [`Argument`].
    ///
    /// The launch counts as a use of the whole view that is passed, whatever the kernel accesses: on the
    /// device, a kernel that is passed a whole buffer runs after each pending copy to any part of it. To let
    /// both run at once, pass each its own part, as by [`split_at_mut`](crate::Buffer::split_at_mut).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let n = 1000;
    /// let x = stream.upload_new(&vec![1.0f32; n])?;
    /// let mut y = stream.alloc_zeroed::<f32>(n)?;
    /// // SAFETY: scale(const float *x, float *y, float by, unsigned n) reads `n` elements of `x` and
    /// // writes as many of `y`.
    /// unsafe {
    ///     stream.kernel(&function).elements(n).arg(&x).arg(&mut y).arg(2.0f32).arg(n as u32).launch()
    /// }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn arg<A: Argument<'a>>(mut self, argument: A) -> Self {
        let Prepared { arguments, touched, .. } = &mut *self.prepared;
        touched.by = Some(arguments.count());
        argument.into_argument().push(arguments, touched);
        self
    }

    /// Names memory that the kernel uses without being passed it as an argument: through an address
    /// in another argument, or as a [global](crate::Module::global) of its module. As with
    /// [`Launch::arg`], `&buffer` is read, and `&mut buffer` may be written. Launches on several
    /// streams that write parts of one buffer name their parts. With [more than
    /// 32](crate::SliceMut::chunks_mut) in flight, some wait for others, unless each part is a
    /// buffer of its own.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let x = stream.alloc_zeroed::<f32>(256)?;
    /// let launch = stream.kernel(&function).block(256).arg(x.as_raw()).uses(&x);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn uses<A>(mut self, memory: A) -> Self
    where
        A: Argument<'a, As: DeviceVisible<'a>>,
    {
        self.prepared.touched.by = None;
        memory.into_argument().touch(&mut self.prepared.touched);
        self
    }
}

/// # Shape that is set
impl<K: StreamKind> Launch<'_, K> {
    /// The stream that the kernel is launched on.
    pub fn stream(&self) -> &Stream<K> {
        self.stream
    }

    /// The number of blocks, as [`Launch::grid`] or [`Launch::elements`] set it; 1 by default, `0`
    /// for a launch for no elements.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// use cuda_core::Dimensions;
    ///
    /// let launch = stream.kernel(&function).elements(1000);
    /// assert_eq!(launch.get_grid(), Dimensions::from(4));
    /// assert_eq!(launch.get_block(), Dimensions::from(256));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn get_grid(&self) -> Dimensions {
        if self.prepared.is_empty() { Dimensions::from(0) } else { self.prepared.shape.grid }
    }

    /// Threads per [block](Launch::block); 0 until they are set.
    pub fn get_block(&self) -> Dimensions {
        self.prepared.shape.block
    }

    /// [Dynamic shared memory](Launch::dynamic_shared) in bytes per block; none by default.
    pub fn get_dynamic_shared(&self) -> usize {
        self.prepared.shape.dynamic_shared
    }
}
