//! Multiplies matrices with cuBLAS, ordered between the copies of one stream, with a handle for each thread
//! and context. `CUBLAS` names the library if the loader does not find it.

mod shared;

use std::env;
use std::ffi::{OsString, c_int, c_void};
use std::process::ExitCode;
use std::ptr;
use std::sync::OnceLock;

use cuda_core::sys::{CUdeviceptr, CUstream};
use cuda_core::{Context, ContextLocal, DeviceBuffer, Stream};
use libloading::Library;

// As declared in cublas_v2.h since 11.0; enums are ints.
type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type SetStream = unsafe extern "C" fn(*mut c_void, CUstream) -> c_int;
type GemmEx = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
    c_int,
    CUdeviceptr,
    c_int,
    c_int,
    *const f32,
    CUdeviceptr,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

const R_32F: c_int = 0;
const COMPUTE_32F: c_int = 68;
const GEMM_DEFAULT: c_int = -1;

/// Functions of cuBLAS.
#[derive(Clone, Copy)]
struct Cublas {
    create: Create,
    destroy: Destroy,
    set_stream: SetStream,
    gemm_ex: GemmEx,
}

impl Cublas {
    /// Returns the library, which is never unloaded; [`None`] if there is none.
    fn get() -> Option<Self> {
        static LOADED: OnceLock<Option<Cublas>> = OnceLock::new();
        *LOADED.get_or_init(Self::load)
    }

    fn load() -> Option<Self> {
        let names = [
            "libcublas.so.13",
            "libcublas.so.12",
            "libcublas.so.11",
            "cublas64_13.dll",
            "cublas64_12.dll",
        ];
        let chosen = env::var_os("CUBLAS").map(|file| vec![file]);
        let files = chosen.unwrap_or_else(|| names.map(OsString::from).to_vec());
        // SAFETY: the initialisers of cuBLAS only set up the library.
        let library = files.iter().find_map(|file| unsafe { Library::new(file) }.ok())?;
        // It is never unloaded.
        let library: &'static Library = Box::leak(Box::new(library));
        Some(Self {
            // SAFETY: as declared, by the note on these types.
            create: *unsafe { library.get(b"cublasCreate_v2\0") }.ok()?,
            // SAFETY: as above.
            destroy: *unsafe { library.get(b"cublasDestroy_v2\0") }.ok()?,
            // SAFETY: as above.
            set_stream: *unsafe { library.get(b"cublasSetStream_v2\0") }.ok()?,
            // SAFETY: as above.
            gemm_ex: *unsafe { library.get(b"cublasGemmEx\0") }.ok()?,
        })
    }
}

/// A handle of cuBLAS.
struct Handle {
    raw: *mut c_void,
    cublas: Cublas,
}

/// A handle for each thread and context.
static HANDLE: ContextLocal<Handle, fn(&Context) -> shared::Result<Handle>> =
    ContextLocal::new(|_| Handle::create());

impl Handle {
    /// Creates a handle in the current context.
    fn create() -> shared::Result<Self> {
        let cublas = Cublas::get().ok_or(shared::Lacks("cuBLAS: CUBLAS may name the library"))?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle, to a local that outlives it.
        succeeded("cublasCreate", unsafe { (cublas.create)(&mut raw) })?;
        Ok(Self { raw, cublas })
    }

    /// `c = a * b`: `rows` by `inner` times `inner` by `columns`, all in row-major order.
    fn multiply(
        &self,
        stream: &Stream,
        (a, b): (&DeviceBuffer<f32>, &DeviceBuffer<f32>),
        c: &mut DeviceBuffer<f32>,
        [rows, inner, columns]: [usize; 3],
    ) -> shared::Result {
        let lengths = [rows * inner, inner * columns, rows * columns];
        assert_eq!([a.len(), b.len(), c.len()], lengths);
        let (x, y, z) = (a.as_raw(), b.as_raw(), c.as_raw());
        let [m, k, n] = [rows, inner, columns].map(|length| length as c_int);
        let gemm = |raw| {
            let Cublas { set_stream, gemm_ex, .. } = self.cublas;
            // SAFETY: handle and stream are live.
            succeeded("cublasSetStream", unsafe { set_stream(self.raw, raw) })?;
            let (one, zero, ty) = (1.0, 0.0, R_32F);
            // cuBLAS stores matrices in column-major order, so it sees the transposed ones. Their product in
            // reverse order is the transpose of `c`.
            // SAFETY: matrices of these sizes; the factors live during the call, which reads them.
            succeeded("cublasGemmEx", unsafe {
                gemm_ex(
                    self.raw,
                    0,
                    0,
                    n,
                    m,
                    k,
                    &one,
                    y,
                    ty,
                    n,
                    x,
                    ty,
                    k,
                    &zero,
                    z,
                    ty,
                    n,
                    COMPUTE_32F,
                    GEMM_DEFAULT,
                )
            })
        };
        let work = stream.work().read(a).read(b).write(c);
        // SAFETY: the product is on this stream, reads `a` and `b`, and writes `c`.
        unsafe { work.enqueue(gemm) }?
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `create`, and not used again.
        unsafe { (self.cublas.destroy)(self.raw) };
    }
}

fn succeeded(call: &str, status: c_int) -> shared::Result {
    if status == 0 { Ok(()) } else { Err(format!("{call}: status {status}").into()) }
}

/// Small integers, so that every order of the sums gives the same result.
fn matrix(len: usize, step: usize) -> Vec<f32> {
    (0..len).map(|at| (at * step % 7) as f32 - 3.0).collect()
}

fn example() -> shared::Result {
    const SHAPE: [usize; 3] = [96, 200, 64];
    let device = shared::device()?;
    if shared::is_simulated(device)? {
        return Err(shared::Lacks("a GPU: cuBLAS does not know the simulated one").into());
    }
    let [rows, inner, columns] = SHAPE;
    let (left, right) = (matrix(rows * inner, 3), matrix(inner * columns, 5));
    let product = |stream: &Stream| -> shared::Result<Vec<f32>> {
        let (a, b) = (stream.upload_new(&left)?, stream.upload_new(&right)?);
        let mut c = stream.alloc::<f32>(rows * columns)?;
        HANDLE.with(stream.context(), |handle| {
            handle.multiply(stream, (&a, &b), &mut c, SHAPE) // after the uploads
        })?;
        Ok(stream.download_vec(&c)?) // after the product
    };
    let mut expected = vec![0.0f32; rows * columns];
    for (at, sum) in expected.iter_mut().enumerate() {
        let (row, column) = (at / columns, at % columns);
        *sum = (0..inner).map(|k| left[row * inner + k] * right[k * columns + column]).sum();
    }
    let stream = device.create_stream()?;
    assert_eq!(product(&stream)?, expected);
    assert_eq!(product(&device.create_stream()?)?, expected); // by the same handle
    // Another thread has a handle of its own, which is destroyed when the thread ends.
    let elsewhere = || product(&stream).map_err(|error| error.to_string());
    let result = std::thread::scope(|scope| scope.spawn(elsewhere).join());
    assert_eq!(result.expect("no panic")?, expected);
    println!("{rows} by {inner} times {inner} by {columns}: as on the host, three times");
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
