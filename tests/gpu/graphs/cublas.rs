//! Work of cuBLAS in a graph: noted, captured, replayed.

use std::env;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::path::Path;
use std::ptr;

use cuda_core::{Access, DeviceBuffer, Graph, Result, Stream};
use cuda_sys::{CUdeviceptr, CUstream, os};
use support::{gpu_test, report};

use super::context;
use crate::stack;

// All releases since 4.0 have these signatures; `cublasStatus_t` and `cublasOperation_t` are ints.
type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type SetStream = unsafe extern "C" fn(*mut c_void, CUstream) -> c_int;
type Sgemm = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
    CUdeviceptr,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
) -> c_int;

const N: usize = 64;

type Matrix = DeviceBuffer<f32>;

/// A cuBLAS handle, with the functions that the test calls.
struct Cublas {
    handle: *mut c_void,
    destroy: Destroy,
    set_stream: SetStream,
    sgemm: Sgemm,
}

impl Cublas {
    /// Loads the library beside the libcudart of `CUDA_TESTS_LIBCUDART`; [`None`] if there is none. Needs a
    /// current context.
    fn load() -> Option<Self> {
        let runtime = env::var_os("CUDA_TESTS_LIBCUDART")?;
        let folder = Path::new(&runtime).parent()?;
        let library = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"]
            .iter()
            // SAFETY: the initialisers of cuBLAS only set it up.
            .find_map(|name| unsafe { os::Library::open(folder.join(name).as_os_str()) }.ok())?;
        let find = |symbol: &CStr| {
            let address = library.symbol(symbol);
            assert!(!address.is_null(), "no {symbol:?}");
            address
        };
        // SAFETY: as declared, by the note on these types.
        let create = unsafe { transmute::<*const c_void, Create>(find(c"cublasCreate_v2")) };
        let mut handle = ptr::null_mut();
        // SAFETY: the call writes one handle, to a local that outlives it.
        assert_eq!(unsafe { create(&mut handle) }, 0, "cublasCreate");
        Some(Self {
            handle,
            // SAFETY: as declared, by the note on these types.
            destroy: unsafe { transmute::<*const c_void, Destroy>(find(c"cublasDestroy_v2")) },
            // SAFETY: as declared, by the note on these types.
            set_stream: unsafe {
                transmute::<*const c_void, SetStream>(find(c"cublasSetStream_v2"))
            },
            // SAFETY: as declared, by the note on these types.
            sgemm: unsafe { transmute::<*const c_void, Sgemm>(find(c"cublasSgemm_v2")) },
        })
    }

    /// Enqueues `c = a * b`, with `N` by `N` elements each.
    fn gemm(&self, stream: CUstream, [a, b, c]: [CUdeviceptr; 3]) {
        // SAFETY: handle and stream are live.
        assert_eq!(unsafe { (self.set_stream)(self.handle, stream) }, 0);
        let (n, one, zero) = (N as c_int, 1.0, 0.0);
        // SAFETY: three matrices of `N` by `N`; the factors live during the call, which reads them.
        let code =
            unsafe { (self.sgemm)(self.handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n) };
        assert_eq!(code, 0, "cublasSgemm");
    }

    /// Enqueues the product as [work](Stream::work) of the stream.
    fn multiply(&self, stream: &Stream, a: &Matrix, b: &Matrix, c: &mut Matrix) -> Result<()> {
        let matrices = [a.as_raw(), b.as_raw(), c.as_raw()];
        let work = stream.work().read(a).read(b).write(c);
        // SAFETY: the product is on this stream, reads `a` and `b`, and writes `c`.
        unsafe { work.enqueue(|raw| self.gemm(raw, matrices)) }
    }

    /// Enqueues the product, and notes each use before and after.
    fn multiply_noted(
        &self,
        stream: &Stream,
        a: &Matrix,
        b: &Matrix,
        c: &mut Matrix,
    ) -> Result<()> {
        let note = || {
            // SAFETY: only the product uses them until the second call, on this stream.
            unsafe { a.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { b.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { c.note_use(stream, Access::Write) }
        };
        note()?;
        self.gemm(stream.as_raw(), [a.as_raw(), b.as_raw(), c.as_raw()]);
        note()
    }
}

/// Returns a matrix in the order of BLAS, column after column.
fn matrix(of: impl Fn(usize, usize) -> usize) -> Vec<f32> {
    (0..N * N).map(|at| of(at % N, at / N) as f32).collect()
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let sum = |row: usize, column: usize| (0..N).map(|k| a[k * N + row] * b[column * N + k]).sum();
    (0..N * N).map(|at| sum(at % N, at / N)).collect()
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: created by `load`, and not used again.
        unsafe { (self.destroy)(self.handle) };
    }
}

gpu_test! {
    needs 1, real, runtime;
    fn l_cublas_in_a_graph() -> Result<()> {
        let context = context()?;
        stack::with(context.as_raw(), || {
            let Some(cublas) = Cublas::load() else {
                report(module_path!(), format_args!("left out: no cuBLAS beside libcudart"));
                return Ok(());
            };
            let stream = context.create_stream()?;
            let mut a = stream.alloc::<f32>(N * N)?;
            let mut b = stream.alloc::<f32>(N * N)?;
            let mut c = stream.alloc_zeroed::<f32>(N * N)?;
            let mut d = stream.alloc_zeroed::<f32>(N * N)?;
            // Neither matrix is symmetric, and they do not commute.
            let of = |row: usize, column: usize| (row * 7 + column * 3) % 11;
            let (left, right) = (matrix(of), matrix(|row, column| of(column, 2 * row)));
            let factor = stream.upload_new(&right)?;
            stream.upload(&left, &mut a)?;
            cublas.multiply(&stream, &a, &factor, &mut c)?; // allocates its workspace
            let chain = Graph::capture(&context, |stream| {
                stream.copy(&factor, &mut b)?;
                cublas.multiply(stream, &a, &b, &mut c)?;
                stream.copy(&c, &mut d)
            })?;
            let flow = Graph::capture_by_access(&context, |stream| {
                stream.copy(&factor, &mut b)?;
                cublas.multiply_noted(stream, &a, &b, &mut c)?;
                stream.copy(&c, &mut d)
            })?;
            for graph in [chain, flow] {
                let mut exec = graph.instantiate()?;
                for scale in [1.0f32, 5.0] {
                    let left: Vec<f32> = left.iter().map(|x| scale * x).collect();
                    stream.upload(&left, &mut a)?;
                    stream.fill(&mut b, 0.0)?;
                    exec.launch(&stream)?;
                    // Floats represent these sums of small integers exactly.
                    assert_eq!(stream.download_vec(&d)?, product(&left, &right));
                }
            }
            Ok(())
        })
    }
}
