//! Libraries: loaded once for all contexts, with a module in each context that uses them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use crate::entry::jit::Answers;
use crate::handle::{Id, Objects};
use crate::module::ptx::Ptx;

#[derive(Debug)]
pub(crate) struct Libraries {
    pub(crate) loaded: Objects<Library>,
    pub(crate) kernels: Objects<Kernel>,
}

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) ptx: Arc<Ptx>,
    pub(crate) answers: Answers,
    /// Modules by context. A destroyed context's module is destroyed with it.
    pub(crate) modules: BTreeMap<Id, Id>,
    /// Kernels that were looked up, by name.
    pub(crate) kernels: BTreeMap<String, Id>,
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) library: Id,
    pub(crate) name: String,
    /// The name as `cuKernelGetName` returns it.
    pub(crate) symbol: CString,
}

impl Libraries {
    pub(crate) fn new() -> Self {
        Self { loaded: Objects::new(0x8000_0000), kernels: Objects::new(0x9000_0000) }
    }

    /// Returns whether a module belongs to a library, which is reported itself.
    pub(crate) fn has(&self, module: Id) -> bool {
        let mut modules = self.loaded.values().flat_map(|library| library.modules.values());
        modules.any(|&other| other == module)
    }
}
