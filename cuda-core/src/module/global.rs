//! Global variables of a module, as buffers.

use cuda_sys::{CUdeviceptr, symbol as cu};

use super::Module;
use super::code::Code;
use crate::alloc::{MemoryOwner, OwnerTraits, owned};
use crate::context::Context;
use crate::error::{Error, Result, c_string};
use crate::memory::{DeviceBuffer, PointerAttributes, elements};
use crate::process::Failed;
use crate::types::Pod;

/// # Global variables
impl Module {
    /// Returns the global or constant variable with that name, as a buffer over all of it:
    /// `cuModuleGetGlobal_v2`. Calls `cuPointerGetAttributes` to learn whether this is a managed
    /// variable, which every context reaches.
    ///
    /// A variable has one buffer at a time: while the buffer lives, no other code can access the
    /// variable through this crate. The buffer keeps the module loaded, and dropping it waits for the work
    /// that uses it. Kernels reach the variable without being passed it, so launches must name it
    /// with [`Launch::uses`](crate::Launch::uses).
    ///
    /// # Errors
    /// [`ModuleError::NotFound`](crate::ModuleError::NotFound); [`Error::Invalid`] while another
    /// buffer of the variable lives, if the variable is not a whole number of elements or not
    /// aligned for them, and for a name with a NUL byte.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let module = cuda_core::Module::from_ptx(&device.context()?, "")?;
    /// let stream = device.create_stream()?;
    /// let mut table = module.global::<f32>("table")?;
    /// stream.upload(&[1.0; 256], &mut table)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuModuleGetGlobal", "cuPointerGetAttributes"))]
    #[doc(alias("cudaGetSymbolAddress", "cudaGetSymbolSize", "cudaPointerGetAttributes"))]
    #[doc(alias("cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "__constant__"))]
    pub fn global<T: Pod>(&self, name: &str) -> Result<DeviceBuffer<T>> {
        let symbol = c_string("cuModuleGetGlobal", name)?;
        let handle = self.0.live()?.raw.0;
        let found = self.context().ask("cuModuleGetGlobal", (0, 0), |(address, bytes)| {
            // SAFETY: the call writes an address and a size, to exclusive borrows; the name is
            // NUL-terminated and read during the call only; `self` keeps the module loaded, and its
            // context is current.
            unsafe { cu::cuModuleGetGlobal_v2(address, bytes, handle, symbol.as_ptr()) }
        });
        let (address, bytes) = found.map_err(|error| error.naming(name))?;
        let code = Code::Module(self.0.clone());
        buffer("cuModuleGetGlobal", code, self.context(), (address, bytes), name)
    }
}

/// Returns the variable with that name as a buffer, unless a buffer of it exists.
pub(super) fn buffer<T: Pod>(
    op: &'static str,
    code: Code,
    context: &Context,
    (address, bytes): (CUdeviceptr, usize),
    name: &str,
) -> Result<DeviceBuffer<T>> {
    let named = |error| match error {
        Error::Invalid(it) => Error::invalid(op, format!("the global `{name}`: {}", it.reason)),
        other => other,
    };
    let len = elements::<T>(op, bytes, address).map_err(named)?;
    // A variable of no bytes can have any number of buffers.
    let taken = bytes == 0 || code.users().take_global(address);
    let why = || format!("there is a buffer of the global `{name}` already");
    Error::unless_with(taken, op, why)?;
    let owner = GlobalLease { code, given_back: bytes == 0, is_managed: is_managed(address) };
    Ok(owned(context, address, bytes, owner, len))
}

/// Returns whether this is a managed variable, which every context reaches; `false` if the driver
/// does not answer.
fn is_managed(address: CUdeviceptr) -> bool {
    PointerAttributes::of_device(address).is_ok_and(|attributes| attributes.is_managed)
}

/// The code whose variable a buffer covers.
struct GlobalLease {
    code: Code,
    given_back: bool,
    is_managed: bool,
}

impl MemoryOwner for GlobalLease {
    /// The memory belongs to the code, so nothing is freed: another buffer may take the variable.
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        self.code.users().give_global_back(address);
        self.given_back = true;
        Ok(())
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { in_the_context: !self.is_managed, ..OwnerTraits::default() }
    }
}

impl Drop for GlobalLease {
    /// Work that could not be waited for may still use the variable, so the code is never unloaded.
    fn drop(&mut self) {
        if !self.given_back {
            self.code.users().keep_for_good();
        }
    }
}
