//! Modules: their PTX, functions and variables.

pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod ptx;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use crate::engine::clock::Point;
use crate::entry::jit::Answers;
use crate::handle::Id;
use crate::report::ViolationKind;
use crate::state::{State, is_retired};

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Id,
    pub(crate) ptx: Arc<ptx::Ptx>,
    /// Kernels that were looked up, by name.
    pub(crate) functions: BTreeMap<String, Id>,
    /// Global variables: block, address and size of each.
    pub(crate) globals: BTreeMap<String, (Id, u64, usize)>,
    /// Launches that the host may not have waited for.
    pub(crate) launches: Vec<Point>,
    /// The number of launches from which on `note_launch` removes those that the host has waited for.
    pub(crate) many: usize,
    /// The options of the load call, unless the module belongs to a library.
    pub(crate) answers: Option<Answers>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: Id,
    pub(crate) name: String,
    /// The name as `cuFuncGetName` returns it.
    pub(crate) symbol: CString,
    /// Whether its code is loaded. The code is loaded when the function is looked up.
    pub(crate) is_loaded: bool,
    pub(crate) max_dynamic_shared: i32,
    pub(crate) carveout: i32,
    /// Attributes that were set; the simulator accepts any.
    pub(crate) set: BTreeMap<u32, i32>,
}

/// Half of the least value of `many` after a search.
const FEW: usize = 8;

impl State {
    /// Returns whether a block is a module's variable, which is freed with the module.
    pub(crate) fn is_global(&self, block: Id) -> bool {
        let mut globals = self.modules.values().flat_map(|module| module.globals.values());
        globals.any(|&(global, ..)| global == block)
    }

    /// Records a launch of the module's kernels.
    pub(crate) fn note_launch(&mut self, module: Id, point: Point) {
        let Self { modules, host, .. } = self;
        if let Some(module) = modules.get_mut(&module) {
            if module.launches.len() >= module.many {
                let covers = host.covers();
                module.launches.retain(|past| !covers(*past));
                module.many = 2 * module.launches.len().max(FEW);
            }
            module.launches.push(point);
        }
    }

    /// Removes a module with its functions and globals.
    pub(crate) fn unload(&mut self, id: Id, call: &'static str) {
        let Some(module) = self.modules.remove(&id) else {
            return;
        };
        for function in module.functions.values() {
            self.functions.remove(function);
        }
        for &(block, ..) in module.globals.values() {
            self.release_block(block, call);
        }
    }

    /// Reports kernels of the module, and work on its globals, that the host has not waited for. CUDA does
    /// not document that unloading waits.
    pub(crate) fn check_unload(&mut self, id: Id, call: &'static str) {
        let Some(module) = self.modules.get(&id) else {
            return;
        };
        let running = {
            let covers = self.host.covers();
            let pending = |point: &&Point| {
                !covers(**point) && !is_retired(&self.streams, &self.dead, point.stream)
            };
            module.launches.iter().find(pending).copied()
        };
        let globals: Vec<Id> = module.globals.values().map(|&(block, ..)| block).collect();
        if let Some(point) = running {
            let message = format!("a kernel of the module is queued on stream #{}", point.stream);
            self.log.violation(ViolationKind::UseAfterFree, call, message);
        }
        for block in globals {
            self.check_free(call, block);
        }
    }
}
