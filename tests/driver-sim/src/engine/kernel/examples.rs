//! The kernels of `cuda-core`'s examples, for the simulator as a library, where programs cannot register
//! kernels.

use super::register_kernel;

pub(crate) fn register() {
    crate::kernels! {
        // saxpy(float a, const float *x, float *y, unsigned n)
        fn saxpy(a: f32, x: &[f32; n], y: &mut [f32; n], n: u32) {
            y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
        }
        // twice(float *x, unsigned n)
        fn twice(x: &mut [f32; n], n: u32) {
            x.iter_mut().for_each(|x| *x *= 2.0);
        }
        // residual(const float *x, const float *y, const float *w, float *r, unsigned dim, unsigned n):
        // r = x * w - y, with x of dim columns.
        fn residual(
            x: &[f32; dim * n], y: &[f32; n], w: &[f32; dim], r: &mut [f32; n], dim: u32, n: u32
        ) {
            r.iter_mut().zip(y).for_each(|(r, y)| *r = -y);
            for (column, w) in x.chunks(y.len().max(1)).zip(w) {
                r.iter_mut().zip(column).for_each(|(r, x)| *r += w * x);
            }
        }
        // gradient(const float *x, const float *r, float *g, float scale, unsigned n):
        // g = scale * transpose(x) * r, by a block for each column of x.
        fn gradient(
            x: &[f32; launch.grid()[0] * n], r: &[f32; n], g: &mut [f32; launch.grid()[0]], scale: f32, n: u32
        ) in launch {
            for (g, column) in g.iter_mut().zip(x.chunks(r.len().max(1))) {
                *g = scale * column.iter().zip(r).map(|(x, r)| x * r).sum::<f32>();
            }
        }
    }
    // newton(float a, float *x, unsigned *steps, cudaGraphConditionalHandle go_on)
    register_kernel(
        "newton",
        |launch| vec![launch.writes::<f32>(1, 1), launch.writes::<u32>(2, 1)],
        |launch, memory| {
            let a = launch.value::<f32>(0);
            let mut error = 0.0;
            memory.slice_mut(launch.address(1), |x: &mut [f32]| {
                x[0] = 0.5 * (x[0] + a / x[0]);
                error = x[0] * x[0] - a;
            })?;
            memory.slice_mut(launch.address(2), |steps: &mut [u32]| steps[0] += 1)?;
            memory.set_condition(launch.value(3), u32::from(error.abs() > 0.001));
            Ok(())
        },
    );
}
