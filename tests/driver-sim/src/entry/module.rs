//! Modules: loads PTX, and looks up functions and variables.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cuda_sys::*;

use super::jit::{Answers, Options};
use crate::call::{Call, Outcome, put, put_if};
use crate::handle::{Id, pointer};
use crate::memory::place::Owner;
use crate::module::{Function, Module, ptx};

entries! {
    cuModuleLoadData(module, image) |call| {
        // SAFETY: the caller passes a place and an image.
        unsafe { load(call, module, image, &mut Options::default()) }.map(drop)
    }

    cuModuleLoadDataEx(module, image, count, keys, values) |call| {
        // SAFETY: the caller passes `count` keys and values.
        let mut options = unsafe { Options::read(count as usize, keys, values) }?;
        // SAFETY: the caller passes a place and an image.
        let loaded = unsafe { load(call, module, image, &mut options) };
        // SAFETY: the values and buffers belong to the caller and are valid during the call.
        unsafe { options.answer(values) };
        let id = loaded?;
        if let Some(module) = call.modules.get_mut(&id) {
            module.answers = Some(Answers::kept(options, values));
        }
        Ok(())
    }

    cuModuleUnload(module) |call| {
        call.current()?;
        let id = call.module(module)?;
        call.forbid_in_capture()?;
        let name = call.name;
        // Checked first, because the wait below would hide it.
        call.check_unload(id, name);
        let context = call.modules[&id].context;
        call.synchronize_context(context);
        if let Some(answers) = call.modules.get_mut(&id).and_then(|module| module.answers.take()) {
            // SAFETY: by the contract of loading, buffers and values belong to the driver until the module is
            // unloaded.
            unsafe { answers.again() };
        }
        call.unload(id, name);
        Ok(())
    }

    cuModuleGetFunction(function, module, name) |call| {
        call.current()?;
        let id = call.module(module)?;
        // SAFETY: the caller passes a C string.
        let name = unsafe { text(name) }?;
        let found = function_of(call, id, name)?;
        // SAFETY: the caller passes a place for the function.
        unsafe { put(function, pointer(call.functions[&found].handle)) }
    }

    cuModuleGetFunctionCount(count, module) |call| {
        let id = call.module(module)?;
        let found = call.modules[&id].ptx.kernels.len();
        // SAFETY: the caller passes a place for the number.
        unsafe { put(count, found as c_uint) }
    }

    cuModuleEnumerateFunctions(functions, count, module) |call| {
        let id = call.module(module)?;
        let names: Vec<String> = call.modules[&id].ptx.kernels.keys().cloned().collect();
        for (at, name) in names.into_iter().take(count as usize).enumerate() {
            let found = listed(call, id, name);
            // SAFETY: the caller passes places for `count` functions.
            unsafe { put(functions.wrapping_add(at), pointer(call.functions[&found].handle)) }?;
        }
        Ok(())
    }

    cuModuleGetGlobal_v2(address, bytes, module, name) |call| {
        call.current()?;
        let id = call.module(module)?;
        // SAFETY: the caller passes a C string.
        let name = unsafe { text(name) }?;
        let found = call.modules[&id].globals.get(&name).copied();
        let (_, start, size) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: the caller passes a place for the address, or null.
        unsafe { put_if(address, start) };
        // SAFETY: the caller passes a place for the size, or null.
        unsafe { put_if(bytes, size) };
        Ok(())
    }

    cuFuncGetAttribute(value, attribute, function) |call| {
        let id = call.function(function)?;
        if !call.functions[&id].is_loaded {
            return Err(CUDA_ERROR_FUNCTION_NOT_LOADED);
        }
        let found = attribute_of(call, id, attribute).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller passes a place for the value.
        unsafe { put(value, found) }
    }

    cuFuncSetAttribute(function, attribute, value) |call| {
        let id = call.function(function)?;
        let function = call.functions.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        match attribute {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=OPT_IN).contains(&value) => {
                function.max_dynamic_shared = value;
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => {
                function.carveout = value;
            }
            // Cluster attributes.
            CUfunction_attribute(10..=15) => {
                function.set.insert(attribute.0, value);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    cuFuncSetCacheConfig(function, config) |call| {
        call.function(function)?;
        if config.0 > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    cuFuncGetName(name, function) |call| {
        let id = call.function(function)?;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(name, call.functions[&id].symbol.as_ptr()) }
    }

    cuFuncGetParamInfo(function, index, offset, size) |call| {
        let id = call.function(function)?;
        let parameters = &entry(call, id).parameters;
        let found = *parameters.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller passes a place for the offset.
        unsafe { put(offset, found.start) }?;
        // SAFETY: the caller passes a place for the size, or null.
        unsafe { put_if(size, found.size) };
        Ok(())
    }
}

/// Dynamic shared memory that a block can opt into; next, its default limit.
pub(super) const OPT_IN: c_int = 227 << 10;
const UNASKED: c_int = 48 << 10;

impl Call {
    pub(crate) fn module(&mut self, handle: CUmodule) -> Outcome<Id> {
        let found = self.modules.resolve(handle);
        self.found(found, "module", handle.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn function(&mut self, handle: CUfunction) -> Outcome<Id> {
        let found = self.functions.resolve(handle);
        self.found(found, "function", handle.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Returns what a kernel's text declares.
pub(super) fn entry(call: &Call, function: Id) -> &ptx::Entry {
    let function = &call.functions[&function];
    &call.modules[&function.module].ptx.kernels[&function.name]
}

fn attribute_of(call: &Call, id: Id, attribute: CUfunction_attribute) -> Option<c_int> {
    let function = &call.functions[&id];
    Some(match attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        | CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
        | CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        | CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
        CU_FUNC_ATTRIBUTE_NUM_REGS => 16,
        CU_FUNC_ATTRIBUTE_PTX_VERSION => call.modules[&function.module].ptx.version,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_dynamic_shared,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => function.carveout,
        CUfunction_attribute(10..=15) => function.set.get(&attribute.0).copied().unwrap_or(0),
        _ => return None,
    })
}

/// Looks up the function of that name, and loads its code.
pub(super) fn function_of(call: &mut Call, module: Id, name: String) -> Outcome<Id> {
    if !call.modules[&module].ptx.kernels.contains_key(&name) {
        return Err(CUDA_ERROR_NOT_FOUND);
    }
    let found = listed(call, module, name);
    if let Some(function) = call.functions.get_mut(&found) {
        function.is_loaded = true;
    }
    Ok(found)
}

/// Looks up a function without loading its code. The first use creates it.
fn listed(call: &mut Call, module: Id, name: String) -> Id {
    let known = call.modules[&module].functions.get(&name).copied();
    known.unwrap_or_else(|| new_function(call, module, name))
}

fn new_function(call: &mut Call, module: Id, name: String) -> Id {
    let id = call.new_id();
    if let Some(module) = call.modules.get_mut(&module) {
        module.functions.insert(name.clone(), id);
    }
    let function = Function {
        module,
        // The name came as a C string.
        symbol: CString::new(name.clone()).unwrap_or_default(),
        name,
        is_loaded: false,
        max_dynamic_shared: UNASKED,
        carveout: -1,
        set: BTreeMap::new(),
    };
    call.functions.add(id, function);
    id
}

/// # Safety
/// `text` is null or a C string.
pub(super) unsafe fn text(text: *const c_char) -> Outcome<String> {
    if text.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so a C string.
    let text = unsafe { CStr::from_ptr(text) };
    // `to_str` is cheaper under Miri.
    Ok(match text.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => text.to_string_lossy().into_owned(),
    })
}

/// # Safety
/// `module` is null or valid for a write. `image` is null, NUL-terminated text, or an image of at least four
/// bytes.
unsafe fn load(
    call: &mut Call,
    module: *mut CUmodule,
    image: *const c_void,
    options: &mut Options,
) -> Outcome<Id> {
    let context = call.current()?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: this function's contract.
    let ptx = unsafe { options.compile(image) }?;
    let id = load_into(call, context, ptx)?;
    // SAFETY: not null, so a place for the module.
    unsafe { put(module, pointer(call.modules[&id].handle)) }?;
    Ok(id)
}

/// Instantiates a module in a context.
pub(super) fn load_into(call: &mut Call, context: Id, ptx: Arc<ptx::Ptx>) -> Outcome<Id> {
    let device = call.contexts[&context].device;
    let bytes = ptx.globals.values().fold(0_usize, |all, it| all.saturating_add(it.size));
    call.reserve(device, None, bytes)?;
    let id = call.new_id();
    let mut globals = BTreeMap::new();
    for (global, declared) in &ptx.globals {
        let (size, owner) = (declared.size, Owner::Context(context));
        let (block, address) = call.allocate(device, owner, size)?;
        if let Some(block) = call.space.blocks.get_mut(&block) {
            block.pages.write(0, &declared.initial);
        }
        globals.insert(global.clone(), (block, address, size));
    }
    let module = Module {
        context,
        ptx,
        functions: BTreeMap::new(),
        globals,
        launches: Vec::new(),
        many: 0,
        answers: None,
    };
    call.modules.add(id, module);
    Ok(id)
}
