//! Launches: a kernel with its shape and arguments, enqueued by one driver call.

use std::borrow::Cow;
use std::sync::Arc;

use cuda_sys::{
    CU_LAUNCH_ATTRIBUTE_PRIORITY, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUlaunchConfig, CUresult,
    symbol as cu,
};

use crate::context::Context;
use crate::error::{Error, LAUNCH as OP, LaunchError, Result, WrongContext, asked};
use crate::module::{Function, Kernel};
use crate::stream::{AnyThread, Stream, StreamKind};
use crate::timeline::ledger::Touch;
use crate::timeline::recording::{GraphTraits, Notes, Recording};
use crate::util::debug_by;

// Separated by blank lines, so that rustfmt keeps this order: rustdoc shows the `impl`s in it.
mod build;

pub(super) mod argument;
mod attributes;
pub(crate) mod limits;
mod shape;

pub use argument::{Argument, DeviceVisible};
pub use attributes::MemorySyncDomain;
pub use shape::Dimensions;

use argument::{Arguments, Pointers, Touched};
use shape::LaunchShape;

/// A launch of a kernel on a stream; made by [`Stream::kernel`].
///
/// Buffers are given as references or views. The stream waits for other streams' work on them, and
/// later users of the buffers wait for the kernel. Anything that is [`Pod`](crate::Pod) is given by
/// value and passed to the kernel bit by bit. References to host memory do not compile:
///
/// ```compile_fail,E0277
/// fn launch(stream: &cuda_core::Stream, kernel: &cuda_core::Function) {
///     let host = [1.0f32; 16];
///     stream.kernel(kernel).block(1).arg(&host);
/// }
/// ```
///
/// A launch can be made more than once, by calling `launch` again.
///
/// ```no_run
/// use cuda_core::{Device, Module};
///
/// # let ptx = String::new();
/// let stream = Device::get(0)?.create_stream()?;
/// let saxpy = Module::from_ptx(stream.context(), &ptx)?.function("saxpy")?;
/// let x = stream.alloc_zeroed::<f32>(1 << 20)?;
/// let mut y = stream.alloc_zeroed::<f32>(1 << 20)?;
/// let n = 1u32 << 20;
/// let mut launch = stream.kernel(&saxpy).elements(1 << 20).arg(2.0f32).arg(&x).arg(&mut y).arg(n);
/// // SAFETY: `saxpy(float a, const float *x, float *y, unsigned n)` reads `n` elements of `x` and
/// // writes as many of `y`.
/// unsafe { launch.launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[must_use = "nothing is launched until `launch` is called"]
#[doc(alias("LaunchConfig", "RawKernel"))]
#[doc(alias("LaunchArgs"))]
pub struct Launch<'a, K: StreamKind = AnyThread> {
    stream: &'a Stream<K>,
    /// Boxed: every method takes and returns the launch.
    prepared: Box<Prepared<'a>>,
}

/// What a launch collects before it is made. Smaller than a kibibyte: glibc's allocator serves that
/// from the thread's own cache, in a tenth of the time that a larger block takes.
struct Prepared<'a> {
    function: LaunchedFunction<'a>,
    shape: LaunchShape,
    /// The elements, along `x` and `y`, that the grid is to cover.
    elements: Option<[usize; 2]>,
    arguments: Arguments,
    touched: Touched<'a>,
}

impl<'a> Prepared<'a> {
    /// Returns one block, without arguments. Constructs it in its box: moving it there would copy
    /// most of a kibibyte that is not initialised.
    #[inline]
    fn boxed(context: &'a Context, function: LaunchedFunction<'a>) -> Box<Self> {
        let mut memory = Box::new_uninit();
        let place: *mut Self = memory.as_mut_ptr();
        macro_rules! write {
            ($($field:ident: $value:expr,)*) => {
                // Fails to compile if a field is missing.
                let _all = |Self { $($field: _,)* }: Self| ();
                $(
                // SAFETY: the field is within the box's uninitialised memory.
                let field = unsafe { &raw mut (*place).$field };
                // SAFETY: the field is aligned, and not shared.
                unsafe { field.write($value) };
            )*};
        }
        write! {
            function: function,
            shape: LaunchShape::UNSET,
            elements: None,
            arguments: Arguments::new(),
            touched: Touched::new(context),
        }
        // SAFETY: each field was written just now.
        unsafe { memory.assume_init() }
    }
}

/// The function to launch: given, or looked up. The error is boxed, to keep the type small.
type LaunchedFunction<'a> = Result<Cow<'a, Function>, Box<Error>>;

/// Returns the function, if it belongs to the stream's context.
#[inline]
fn usable_on<'l>(function: &'l LaunchedFunction<'_>, stream: &Context) -> Result<&'l Function> {
    match function {
        Ok(function) if function.context() == stream => Ok(function),
        Ok(function) => Err(elsewhere(function, stream)),
        Err(error) => Err((**error).clone()),
    }
}

/// A launch that passed every check that can be made before the driver call.
struct Checked<'l, 'a> {
    function: &'l Function,
    /// The driver's description, without the stream.
    config: CUlaunchConfig,
    arguments: &'l mut Arguments,
    touched: &'l mut Touched<'a>,
}

/// What [`Stream::kernel`] launches: a [`Function`], or a [`Kernel`] of a library, whose function
/// in the stream's context is used. Sealed. A kernel declared by [`kernel!`](crate::kernel!) is
/// launched by its own method `on`, which checks the arguments' types.
///
/// ```no_run
/// use cuda_core::{Launchable, Result, Stream};
///
/// fn run(stream: &Stream, nothing: &impl Launchable) -> Result<()> {
///     // SAFETY: the kernel has no parameter and touches nothing.
///     unsafe { stream.kernel(nothing).block(32).launch() }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel that a stream can launch",
    note = "give `&Function` of a module, or `&Kernel` of a library",
    note = "a smart pointer is dereferenced by hand: `stream.kernel(&*function)`",
    note = "a kernel declared by `kernel!` is launched by its method `on`"
)]
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Launchable: InContext {}

trait InContext {
    fn in_context(&self, context: &Context) -> LaunchedFunction<'_>;
}

impl Launchable for Function {}

impl InContext for Function {
    #[inline]
    fn in_context(&self, _: &Context) -> LaunchedFunction<'_> {
        Ok(Cow::Borrowed(self))
    }
}

impl Launchable for Kernel {}

impl InContext for Kernel {
    fn in_context(&self, context: &Context) -> LaunchedFunction<'_> {
        self.function(context).map(Cow::Owned).map_err(Box::new)
    }
}

/// Returns a test of whether a capture, given by its id, is the recorded capture or one within it.
fn is_part_of(recording: Option<&Arc<Recording>>) -> impl Fn(u64) -> bool {
    move |capture| recording.is_some_and(|recording| recording.is_within(capture))
}

/// The error for a kernel loaded in another context than the stream's.
#[cold]
fn elsewhere(function: &Function, stream: &Context) -> Error {
    let devices = [function.context(), stream].map(|context| context.device().ordinal());
    let (name, [loaded, stream]) = (function.name(), devices);
    let what =
        format!("`{name}`, loaded on device {loaded} and given to a stream of device {stream},");
    Error::from(WrongContext { op: OP, what: what.into() })
}

/// # Kernels
impl<K: StreamKind> Stream<K> {
    /// Prepares a launch on this stream; see [`Launch`]. The block size is still to be set.
    ///
    /// The kernel is a [`Function`], or a [`Kernel`] of a library. A [`Kernel`] is looked up in the
    /// stream's context as by [`Kernel::function`]: the driver is asked once for each context, and
    /// [`Launch::launch`] returns any error.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let mut x = stream.alloc_zeroed::<f32>(256)?;
    /// // SAFETY: scale(float *x) reads and writes an element of `x` for each of the 256 threads.
    /// unsafe { stream.kernel(&function).block(256).arg(&mut x).launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchKernel", "cudaLaunchKernel", "launch_builder"))]
    pub fn kernel<'a>(&'a self, kernel: &'a impl Launchable) -> Launch<'a, K> {
        let context = self.context();
        let prepared = Prepared::boxed(context, kernel.in_context(context));
        Launch { stream: self, prepared }
    }
}

/// # Launching
impl<'a, K: StreamKind> Launch<'a, K> {
    /// Launches the kernel, asynchronously: `cuLaunchKernelEx`. This is one driver call on a
    /// created stream, unless the stream has to wait for another. The first launch of a function
    /// also queries its limits.
    ///
    /// # Errors
    /// Before the launch:
    /// * [`Error::Launch`] for a dimension that is zero or more than the device or the kernel
    ///   allows, for too much shared memory, and for arguments that differ in number or size from
    ///   the kernel's parameters, if the driver reports those (from CUDA 12.4 on);
    /// * [`Error::Invalid`] for a [`Condition`](crate::Condition) on a stream that its graph is not
    ///   captured on;
    /// * [`Error::WrongContext`] for a kernel of another context than the stream's, and for a
    ///   texture, a surface or memory of another context of its device, unless that memory comes
    ///   from the driver's pool;
    /// * [`Error::WrongDevice`] for a texture or a surface of another device, and for memory of
    ///   another device to which the stream's context was given no
    ///   [access](crate::Context::enable_peer_access). Memory of a pool is refused only if no pool
    ///   of that device is open to the stream's device, since the driver is not asked which pool
    ///   the memory belongs to. Also for memory that a graph [allocates](Stream::alloc_in_graph) on
    ///   another device, and for virtual memory that the kernel may write and the device may only
    ///   read. Memory of other code is not checked.
    ///
    /// The first launch of a function queries its limits before these checks; later launches query
    /// nothing.
    ///
    /// [`LaunchError::Refused`] in [`Error::Launch`] if the driver refuses the launch, with its
    /// code, such as `COOPERATIVE_LAUNCH_TOO_LARGE`. The call that waits for the kernel reports an
    /// error of its execution.
    ///
    /// # Safety
    /// * The arguments match the kernel's parameters in number, order, size and meaning.
    /// * The kernel accesses only memory that it was given: arguments, within their bounds, memory
    ///   passed to [`Launch::uses`], and memory that this crate does not manage and that is ordered
    ///   by other means. It writes only memory that was given as `&mut`.
    /// * Memory of another device's pool belongs to a pool that is open to the stream's device.
    /// * Memory whose address is passed as a value, or lies in memory, lives until the kernel has
    ///   completed.
    /// * Bytes that the kernel writes to a buffer are values of the buffer's type, as any bytes are
    ///   of a [`Pod`](crate::Pod).
    /// * With [`Launch::programmatic`], every block of the kernel waits for the work before it, by
    ///   `griddepcontrol.wait`, before the block ends. Until that wait the block accesses no memory
    ///   that anything enqueued earlier on the stream uses, or has used: memory allocated on the
    ///   stream since may be such memory.
    /// * On a stream of [`Graph::capture`](crate::Graph::capture), all this holds for each launch
    ///   of the graph, also if safe code changes the other operations of an executable or leaves
    ///   them out: [`GraphExec::set_enabled`](crate::GraphExec::set_enabled), `set_copy`,
    ///   `set_fill`, `set_fill_pitched`. Work that another thread enqueues during such a launch may
    ///   use the memory at
    ///   the same time as the kernel.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let mut x = stream.alloc_zeroed::<f32>(256)?;
    /// // SAFETY: scale(float *x) reads and writes an element of `x` for each of the 256 threads.
    /// unsafe { stream.kernel(&function).block(256).arg(&mut x).launch() }?; // returns at once
    /// let scaled = stream.download_vec(&x)?; // once the kernel has completed
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchKernelEx", "cuLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchKernel"))]
    pub unsafe fn launch(&mut self) -> Result<()> {
        if self.prepared.is_empty() {
            return self.launch_nothing();
        }
        let core = self.stream.core();
        let bound = core.bind_work(OP)?;
        let recording = core.timeline().recording();
        let priority = || self.prepared.shape.attributes.get(CU_LAUNCH_ATTRIBUTE_PRIORITY);
        let notes_priority = recording.is_some() && priority().is_some();
        let Checked { function, mut config, arguments, touched } = self.check()?;
        config.hStream = bound.raw();
        touched.require_conditions(OP, is_part_of(recording))?;
        let (_crossings, raw) = (touched.cross(function)?, function.as_raw());
        let mut pointers = Pointers::new();
        arguments.point(&mut pointers);
        let pointers = pointers.as_mut_slice().as_mut_ptr();
        // The function is kept once per driver handle, which is unique while the function's code is
        // kept.
        let (touches, reached) = touched.parts();
        let notes = || {
            let traits =
                if notes_priority { GraphTraits::PRIORITIES } else { GraphTraits::default() };
            let once = Some((raw.addr(), Arc::new(function.clone()) as _));
            Notes { traits, once, reached: reached(), ..Notes::default() }
        };
        let (seq, result) = bound.submit(OP, touches, notes, |_| {
            // SAFETY: the function is loaded and belongs to the stream's context; the
            // configuration, its attributes and the arguments live during the call, which copies
            // them; by the caller's promise there is one pointer per parameter, to as many bytes as
            // the parameter has. Memory that the kernel uses stays allocated until it completes:
            // frees wait for its marks.
            unsafe { cu::cuLaunchKernelEx(&config, raw, pointers, std::ptr::null_mut()) }
        });
        if recording.is_none() {
            function.launched(core.timeline(), seq);
        }
        result.map_err(|error| self.refused(error))
    }

    /// Adds to the error what the launch asked for, unless earlier work caused the error.
    #[cold]
    fn refused(&self, error: Error) -> Error {
        match (&error, &self.prepared.function) {
            (Error::Driver { op: OP, code }, Ok(function)) if !error.is_sticky() => {
                let (kernel, asked) = (function.name().into(), self.prepared.shape.to_string());
                LaunchError::Refused { kernel, asked, code: *code }.into()
            }
            _ => error,
        }
    }

    /// Checks a launch for no elements, and enqueues nothing.
    #[cold]
    fn launch_nothing(&mut self) -> Result<()> {
        let core = self.stream.core();
        core.ensure()?;
        let Checked { function, touched, .. } = self.check()?;
        touched.require_conditions(OP, is_part_of(core.timeline().recording()))?;
        touched.cross(function).map(drop)
    }

    /// Refuses a launch that would certainly fail.
    // Inlined, so that the result is not copied through memory.
    #[inline(always)]
    fn check(&mut self) -> Result<Checked<'_, 'a>> {
        let Prepared { function, shape, arguments, touched, .. } = &mut *self.prepared;
        let function = usable_on(function, self.stream.context())?;
        let limits = function.limits()?;
        let config = shape.config(function, limits)?;
        limits.check_arguments(OP, function, arguments.sizes())?;
        touched.check(function)?;
        Ok(Checked { function, config, arguments, touched })
    }

    /// Describes the launch as a graph node, and passes on what it uses. The kernel may set only
    /// conditions of the graph with that id. It may not use memory of another device, since only a
    /// capture notes the access that this needs.
    pub(crate) fn as_node<R>(
        &mut self,
        op: &'static str,
        conditions_of: Option<u64>,
        call: impl FnOnce(&Function, &CUDA_KERNEL_NODE_PARAMS, &[Touch<'_>]) -> Result<R>,
    ) -> Result<R> {
        Error::unless(!self.prepared.is_empty(), op, "a launch for no elements is no operation")?;
        let Checked { function, config, arguments, touched } = self.check()?;
        let why =
            "a kernel that uses another device's memory: capture it, and `update` to that graph";
        Error::unless(touched.is_near(), op, why)?;
        touched.require_conditions(op, |capture| Some(capture) == conditions_of)?;
        let mut pointers = Pointers::new();
        arguments.point(&mut pointers);
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: function.as_raw(),
            gridDimX: config.gridDimX,
            gridDimY: config.gridDimY,
            gridDimZ: config.gridDimZ,
            blockDimX: config.blockDimX,
            blockDimY: config.blockDimY,
            blockDimZ: config.blockDimZ,
            sharedMemBytes: config.sharedMemBytes,
            kernelParams: pointers.as_mut_slice().as_mut_ptr(),
            ctx: function.context().as_raw(),
            ..Default::default()
        };
        call(function, &node, touched.parts().0)
    }

    /// Queries the driver about this launch, with its context current.
    fn ask(
        &mut self,
        op: &'static str,
        call: impl FnOnce(&mut i32, CUfunction, &CUlaunchConfig) -> CUresult,
    ) -> Result<u32> {
        self.stream.core().ensure()?;
        let none = self.get_cluster().is_some_and(|blocks| blocks.volume() == 0);
        Error::unless(!none, op, "a cluster has at least one block")?;
        let _entered = self.stream.context().enter_briefly()?;
        let stream = self.stream.core().raw();
        // The queries ignore the arguments, so none need be set.
        let Prepared { function, shape, .. } = &mut *self.prepared;
        let function = usable_on(function, self.stream.context())?;
        let mut config = shape.config(function, function.limits()?)?;
        config.hStream = stream;
        let number = asked(op, 0, |number| call(number, function.as_raw(), &config))?;
        Ok(u32::try_from(number).unwrap_or(0))
    }

    /// Returns the most blocks that a [cluster](Launch::cluster) of this launch may have, given its
    /// grid, block and shared memory: `cuOccupancyMaxPotentialClusterSize`. Arguments need not be
    /// set yet.
    ///
    /// # Errors
    /// As [`Launch::launch`], but none of arguments, and the driver's as [`Error::Driver`];
    /// [`Error::Invalid`] for a [cluster](Launch::cluster) of no block.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("reduce")?;
    /// let most = stream.kernel(&function).grid(64).block(256).max_cluster_size()?;
    /// let launch = stream.kernel(&function).grid(64).block(256).cluster(most.min(8));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuOccupancyMaxPotentialClusterSize", "cudaOccupancyMaxPotentialClusterSize"))]
    pub fn max_cluster_size(&mut self) -> Result<u32> {
        self.ask("cuOccupancyMaxPotentialClusterSize", |blocks, function, config| {
            // SAFETY: the call writes one int, to an exclusive borrow; the function is loaded, its
            // context current; the configuration and its attributes live during the call.
            unsafe { cu::cuOccupancyMaxPotentialClusterSize(blocks, function, config) }
        })
    }

    /// Returns how many clusters of this launch the device holds at once:
    /// `cuOccupancyMaxActiveClusters`. Arguments need not be set yet.
    ///
    /// # Errors
    /// As [`Launch::launch`], but none of arguments, and the driver's as [`Error::Driver`];
    /// [`Error::Invalid`] for a [cluster](Launch::cluster) of no block.
    #[doc(alias("cuOccupancyMaxActiveClusters", "cudaOccupancyMaxActiveClusters"))]
    pub fn max_active_clusters(&mut self) -> Result<u32> {
        self.ask("cuOccupancyMaxActiveClusters", |clusters, function, config| {
            // SAFETY: the call writes one int, to an exclusive borrow; the function is loaded, its
            // context current; the configuration and its attributes live during the call.
            unsafe { cu::cuOccupancyMaxActiveClusters(clusters, function, config) }
        })
    }
}

debug_by! {
   [K: StreamKind] Launch<'_, K>: |it| "Launch" {
       function: it.prepared.function, stream: it.stream, grid: it.prepared.shape.grid, block: it.prepared.shape.block,
       dynamic_shared: it.prepared.shape.dynamic_shared, arguments: it.prepared.arguments.sizes().len(); ..
   }
}

#[cfg(test)]
mod tests {
    use super::{Launch, Prepared};
    use crate::AnyThread;

    #[test]
    fn a_launch_is_a_small_value_that_can_be_sent() {
        fn sent<T: Send + Sync>() -> usize {
            size_of::<T>()
        }
        assert_eq!(sent::<Launch<'_, AnyThread>>(), 2 * size_of::<usize>());
        // glibc's thread cache keeps blocks of up to 1032 bytes.
        assert!(size_of::<Prepared<'_>>() <= 1024);
    }
}
