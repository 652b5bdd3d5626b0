//! Host functions: closures that a stream runs in order with its other work.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::symbol as cu;

use crate::error::Result;
use crate::process::driver::enter_callback;
use crate::process::{Contained, contain, drop_hook};
use crate::stream::{Stream, StreamKind};
use crate::timeline::Timeline;
use crate::timeline::ledger::Touch;
use crate::timeline::recording::{GraphTraits, Notes};
use crate::types::Resource;
use crate::util::lock;

pub(crate) type HostFunction = Box<dyn FnOnce() + Send>;

/// The data of one host function, which the driver's thread receives.
struct HostCall {
    /// The function until it is taken out: by the driver's thread to call it, or by the launch to drop it if
    /// the launch returned an error.
    function: Mutex<Option<HostFunction>>,
    /// The stream, and its point before the function.
    timeline: Weak<Timeline>,
    before: u64,
}

/// # Host functions
impl<K: StreamKind> Stream<K> {
    /// Runs `f` on one of the driver's threads when everything enqueued so far has completed:
    /// `cuLaunchHostFunc`, after a [checkpoint](Stream::checkpoint). Work enqueued later waits for `f`.
    ///
    /// CUDA cannot be called from `f`: operations of this crate return
    /// [`Error::InCallback`](crate::Error::InCallback), and resources dropped in `f` are released on another
    /// thread. `f` can access pinned memory that it owns, if all work that uses the memory was enqueued on
    /// the stream before `f`, or is known to have completed. A panic is caught and reported to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook). If the context is lost, the driver never calls `f`, and
    /// it is leaked.
    ///
    /// # Errors
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) on a captured stream, since a graph may be
    /// launched many times: use [`Stream::launch_host_func_each`]; the driver's. After an error `f` has been
    /// dropped or, if the error was one of earlier work, perhaps called.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// stream.launch_host_func(|| println!("everything before this is done"))?;
    ///
    /// let buffer = stream.alloc_zeroed::<u32>(100)?;
    /// let mut host = cuda_core::PinnedBuffer::new(stream.context(), 100)?;
    /// stream.download(&buffer, &mut host)?;
    /// stream.launch_host_func(move || match host.as_slice() {
    ///     Ok(elements) => println!("downloaded: {elements:?}"),
    ///     Err(error) => eprintln!("{error}"),
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchHostFunc", "cudaStreamAddCallback", "cudaLaunchHostFunc"))]
    #[doc(alias("add_callback"))]
    pub fn launch_host_func(&self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        self.launch_host_func_with(Box::new(f), &mut [])
    }

    /// [`Self::launch_host_func`] as an operation that uses the memory of `touches`.
    pub(crate) fn launch_host_func_with(
        &self,
        f: HostFunction,
        touches: &mut [Touch<'_>],
    ) -> Result<()> {
        let core = self.core();
        // Declared before `stream`, so dropped after it, if binding or launching fails.
        let call = Arc::new(HostCall {
            function: Mutex::new(Some(f)),
            timeline: Arc::downgrade(core.timeline()),
            // Read first: work that is counted later may be enqueued after the function.
            before: core.timeline().issued(),
        });
        let op = "cuLaunchHostFunc";
        let stream = core.bind(op)?;
        let launch = |stream| {
            let data = Arc::into_raw(Arc::clone(&call)).cast_mut();
            // SAFETY: `run` has the type that the driver calls, and takes back this call's reference count
            // the one time that it is called.
            unsafe { cu::cuLaunchHostFunc(stream, Some(run), data.cast()) }
        };
        let (_, launched) = stream.late(|| stream.submit(op, touches, Default::default, launch))?;
        if launched.is_err() {
            // The error may be one of earlier work (`crate::process::effect`): then the driver may still call
            // `run`, which finds no function. The driver keeps its reference to the call, permanently if it
            // never makes the call.
            let function = lock(&call.function).take();
            // The closure's captures, and their destructors, are the caller's: no context is entered while
            // they run.
            drop(stream);
            contain(|| drop(function));
        }
        launched
    }
}

/// A function that a graph calls at each launch.
type SharedFunction = Contained<Box<dyn Fn() + Send + Sync>>;

/// # Host functions of graphs
impl<K: StreamKind> Stream<K> {
    /// [`Stream::launch_host_func`] for a function that can be called more than once. On a captured stream,
    /// `f` becomes an operation of the graph, which owns it: each launch calls it. On other streams `f` is
    /// called once and dropped.
    ///
    /// In a graph [by access](crate::Graph::capture_by_access) the function is a barrier; [`Stream::work`]
    /// names the memory that a function uses. Launches of different executables of one graph may call it at
    /// the same time. `f` is dropped once the graph and its executables are dropped and the last launch has
    /// completed; if the launch is the last of these, a thread of this crate drops it.
    ///
    /// # Errors
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) in a body of a [`Condition`](crate::Condition); the
    /// driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::Graph;
    ///
    /// let graph = Graph::capture(&context, |stream| {
    ///     stream.launch_host_func_each(|| println!("launched"))
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// exec.launch(&stream)?; // prints it again
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch_host_func_each(&self, f: impl Fn() + Send + Sync + 'static) -> Result<()> {
        self.launch_host_func_each_with(Box::new(f), &mut [])
    }

    /// [`Self::launch_host_func_each`] as an operation that uses the memory of `touches`.
    pub(crate) fn launch_host_func_each_with(
        &self,
        f: Box<dyn Fn() + Send + Sync>,
        touches: &mut [Touch<'_>],
    ) -> Result<()> {
        let op = "cuLaunchHostFunc";
        if self.core().timeline().recording().is_none() {
            return self.launch_host_func_with(Box::new(f), touches);
        }
        // Declared first, so dropped last if the operation is refused.
        let function = Arc::new(SharedFunction::new(f));
        let bound = self.core().bind_work(op)?;
        let data = Arc::as_ptr(&function).cast_mut();
        let notes = Notes::keeping(GraphTraits::MAY_TAKE_LONG, function.clone());
        // SAFETY: `run_each` has the type that the driver calls; the graph and its executables
        // keep the function until their last launch has completed.
        let call = |stream| unsafe { cu::cuLaunchHostFunc(stream, Some(run_each), data.cast()) };
        bound.submit(op, touches, || notes, call).1
    }
}

unsafe extern "C" fn run_each(data: *mut c_void) {
    let scope = enter_callback();
    // SAFETY: points to the function that the graph keeps, see `Stream::launch_host_func_each`.
    let function = unsafe { &*data.cast::<SharedFunction>() };
    contain_panic(&**function);
    drop(scope);
}

/// Calls a host function and catches its panic, which must not unwind into C. Dropping the payload may panic
/// too; the second payload is leaked, since its drop could panic again, without end.
fn contain_panic(function: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
        if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            std::mem::forget(second);
        }
        drop_hook::report(Resource::HostFunction, 0, 0, None);
    }
}

unsafe extern "C" fn run(data: *mut c_void) {
    let scope = enter_callback();
    // SAFETY: the pointer comes from `Arc::into_raw` above, and the driver calls this once.
    let call = unsafe { Arc::from_raw(data.cast::<HostCall>().cast_const()) };
    let Some(function) = lock(&call.function).take() else { return };
    // "The start of execution of the function has the same effect as synchronizing an event recorded in the
    // same stream immediately prior to the function": the function may access memory that work before it has
    // used.
    if let Some(timeline) = call.timeline.upgrade() {
        timeline.complete(call.before);
    }
    contain_panic(function);
    drop(scope);
}
