//! The kernels of `cuda-core`'s examples: these run on the simulator's library as well, where no program
//! can register closures.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Arguments, Kernel, Memory, Region, Trap};

pub(super) fn all() -> BTreeMap<String, Kernel> {
    let saxpy = Kernel { touches: Arc::new(saxpy_touches), body: Arc::new(saxpy) };
    let residual = Kernel { touches: Arc::new(residual_touches), body: Arc::new(residual) };
    let gradient = Kernel { touches: Arc::new(gradient_touches), body: Arc::new(gradient) };
    let twice = Kernel { touches: Arc::new(twice_touches), body: Arc::new(twice) };
    let newton = Kernel { touches: Arc::new(newton_touches), body: Arc::new(newton) };
    let named = [
        ("saxpy", saxpy),
        ("twice", twice),
        ("newton", newton),
        ("residual", residual),
        ("gradient", gradient),
    ];
    named.map(|(name, kernel)| (name.to_owned(), kernel)).into()
}

/// `__global__ void saxpy(float a, const float *x, float *y, unsigned n)`
fn saxpy(launch: &Arguments, memory: &mut Memory<'_>) -> Result<(), Trap> {
    let (a, x) = (launch.value::<f32>(0), memory.slice::<f32>(launch.address(1))?);
    memory.slice_mut(launch.address(2), |y: &mut [f32]| {
        y.iter_mut().zip(&x).for_each(|(y, x)| *y += a * x);
    })
}

fn saxpy_touches(launch: &Arguments) -> Vec<Region> {
    let n = launch.threads().min(launch.value::<u32>(3).into()) as usize;
    vec![launch.reads::<f32>(1, n), launch.writes::<f32>(2, n)]
}

/// `__global__ void twice(float *x, unsigned n)`
fn twice(launch: &Arguments, memory: &mut Memory<'_>) -> Result<(), Trap> {
    memory.slice_mut(launch.address(0), |x: &mut [f32]| x.iter_mut().for_each(|x| *x *= 2.0))
}

fn twice_touches(launch: &Arguments) -> Vec<Region> {
    let n = launch.threads().min(launch.value::<u32>(1).into()) as usize;
    vec![launch.writes::<f32>(0, n)]
}

/// `__global__ void newton(float a, float *x, unsigned *steps, cudaGraphConditionalHandle go_on)`
fn newton(launch: &Arguments, memory: &mut Memory<'_>) -> Result<(), Trap> {
    let a = launch.value::<f32>(0);
    let mut error = 0.0;
    memory.slice_mut(launch.address(1), |x: &mut [f32]| {
        x[0] = 0.5 * (x[0] + a / x[0]);
        error = x[0] * x[0] - a;
    })?;
    memory.slice_mut(launch.address(2), |steps: &mut [u32]| steps[0] += 1)?;
    memory.set_condition(launch.value(3), u32::from(error.abs() > 0.001));
    Ok(())
}

fn newton_touches(launch: &Arguments) -> Vec<Region> {
    vec![launch.writes::<f32>(1, 1), launch.writes::<u32>(2, 1)]
}

/// `__global__ void residual(const float *x, const float *y, const float *w, float *r, unsigned dim,
/// unsigned n)`: r = x * w - y, with x of dim columns.
fn residual(launch: &Arguments, memory: &mut Memory<'_>) -> Result<(), Trap> {
    let [x, y, w] = [0, 1, 2].map(|index| memory.slice::<f32>(launch.address(index)));
    let (x, y, w) = (x?, y?, w?);
    memory.slice_mut(launch.address(3), |r: &mut [f32]| {
        r.iter_mut().zip(&y).for_each(|(r, y)| *r = -y);
        for (column, w) in x.chunks(y.len().max(1)).zip(&w) {
            r.iter_mut().zip(column).for_each(|(r, x)| *r += w * x);
        }
    })
}

fn residual_touches(launch: &Arguments) -> Vec<Region> {
    let [dim, n] = [4, 5].map(|index| launch.value::<u32>(index) as usize);
    let (x, y) = (launch.reads::<f32>(0, dim * n), launch.reads::<f32>(1, n));
    vec![x, y, launch.reads::<f32>(2, dim), launch.writes::<f32>(3, n)]
}

/// `__global__ void gradient(const float *x, const float *r, float *g, float scale, unsigned n)`:
/// g = scale * transpose(x) * r, by a block for each column of x.
fn gradient(launch: &Arguments, memory: &mut Memory<'_>) -> Result<(), Trap> {
    let [x, r] = [0, 1].map(|index| memory.slice::<f32>(launch.address(index)));
    let (x, r, scale) = (x?, r?, launch.value::<f32>(3));
    memory.slice_mut(launch.address(2), |g: &mut [f32]| {
        for (g, column) in g.iter_mut().zip(x.chunks(r.len().max(1))) {
            *g = scale * column.iter().zip(&r).map(|(x, r)| x * r).sum::<f32>();
        }
    })
}

fn gradient_touches(launch: &Arguments) -> Vec<Region> {
    let (dim, n) = (launch.grid()[0] as usize, launch.value::<u32>(4) as usize);
    vec![launch.reads::<f32>(0, dim * n), launch.reads::<f32>(1, n), launch.writes::<f32>(2, dim)]
}
