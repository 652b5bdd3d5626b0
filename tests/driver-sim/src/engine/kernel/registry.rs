//! The registered kernels, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Arguments, Memory, Region, Trap};

type Touches = dyn Fn(&Arguments) -> Vec<Region> + Send + Sync;
type Body = dyn Fn(&Arguments, &mut Memory<'_>) -> Result<(), Trap> + Send + Sync;

#[derive(Clone)]
pub(super) struct Kernel {
    /// The sizes of the parameters in bytes, if the kernel was declared with them.
    parameters: Option<&'static [usize]>,
    pub(super) touches: Arc<Touches>,
    pub(super) body: Arc<Body>,
}

static KERNELS: Mutex<BTreeMap<String, Kernel>> = Mutex::new(BTreeMap::new());

/// Makes launches of kernels named `name` run `body`, which touches only what `touches` returns. A later
/// registration of the same name replaces it. A module's text must declare a kernel of that name.
/// [`kernels!`](crate::kernels!) is shorter, for kernels whose parameters are numbers and arrays.
///
/// The simulator calls both closures under the driver's lock: they cannot call the driver. If one panics, the
/// simulator reports the message, and the launch fails like a kernel that faults: every later call in its
/// context returns `CUDA_ERROR_LAUNCH_FAILED`.
///
/// ```
/// use cuda_sim::register_kernel;
///
/// // __global__ void saxpy(float a, const float *x, float *y, unsigned n)
/// register_kernel(
///     "saxpy",
///     |launch| {
///         let n = launch.value::<u32>(3) as usize;
///         vec![launch.reads::<f32>(1, n), launch.writes::<f32>(2, n)]
///     },
///     |launch, memory| {
///         let a = launch.value::<f32>(0);
///         let x = memory.slice::<f32>(launch.address(1))?;
///         memory.slice_mut(launch.address(2), |y: &mut [f32]| {
///             y.iter_mut().zip(&x).for_each(|(y, x)| *y += a * x);
///         })
///     },
/// );
/// ```
pub fn register_kernel(
    name: &str,
    touches: impl Fn(&Arguments) -> Vec<Region> + Send + Sync + 'static,
    body: impl Fn(&Arguments, &mut Memory<'_>) -> Result<(), Trap> + Send + Sync + 'static,
) {
    register(name, Kernel { parameters: None, touches: Arc::new(touches), body: Arc::new(body) });
}

/// Like [`register_kernel`], only for launches with parameters of these sizes.
#[doc(hidden)]
pub fn register_declared_kernel(
    name: &str,
    parameters: &'static [usize],
    touches: impl Fn(&Arguments) -> Vec<Region> + Send + Sync + 'static,
    body: impl Fn(&Arguments, &mut Memory<'_>) -> Result<(), Trap> + Send + Sync + 'static,
) {
    let (touches, body) = (Arc::new(touches), Arc::new(body));
    register(name, Kernel { parameters: Some(parameters), touches, body });
}

fn register(name: &str, kernel: Kernel) {
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    kernels.insert(name.to_owned(), kernel);
}

pub(crate) fn any_registered() -> bool {
    !KERNELS.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Returns the kernel of this name, unless it was declared with parameters of other sizes.
pub(super) fn registered(name: &str, sizes: &[usize]) -> Option<Kernel> {
    let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = kernels.get(name)?;
    kernel.parameters.is_none_or(|declared| declared == sizes).then(|| kernel.clone())
}
