//! Libraries: loaded once, instantiated in each context.

use std::collections::BTreeMap;
use std::ffi::{CString, c_uint};

use cuda_sys::*;

use super::jit::{Answers, Options};
use super::module::{function_of, load_into, text};
use crate::call::{Call, Outcome, put, put_if};
use crate::handle::{Id, pointer};
use crate::module::library::{Kernel, Library};

entries! {
    cuLibraryLoadData(
        library, image, keys, values, count, _library_options, _library_values, library_count,
    ) |call| {
        // The safe layer passes no library options.
        if library.is_null() || library_count != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` keys and values.
        let mut options = unsafe { Options::read(count as usize, keys, values) }?;
        // SAFETY: the caller passes a C string, or an image.
        let compiled = unsafe { options.compile(image) };
        // SAFETY: the values and buffers belong to the caller and are valid during the call.
        unsafe { options.answer(values) };
        let ptx = compiled?;
        let id = call.new_id();
        let loaded = Library {
            ptx,
            answers: Answers::kept(options, values),
            modules: BTreeMap::new(),
            kernels: BTreeMap::new(),
        };
        let handle = call.libraries.loaded.add(id, loaded);
        // SAFETY: not null, so a place for the library.
        unsafe { put(library, pointer(handle)) }
    }

    cuLibraryUnload(library) |call| {
        call.forbid_in_capture()?;
        let id = find(call, library)?;
        let name = call.name;
        let modules: Vec<Id> = call.libraries.loaded[&id].modules.values().copied().collect();
        for &module in &modules {
            // Checked first, because the wait below would hide it.
            call.check_unload(module, name);
        }
        for module in modules {
            if let Some(context) = call.modules.get(&module).map(|module| module.context) {
                call.synchronize_context(context);
                call.unload(module, name);
            }
        }
        let Some(library) = call.libraries.loaded.remove(&id) else {
            return Ok(());
        };
        for kernel in library.kernels.values() {
            call.libraries.kernels.remove(kernel);
        }
        // SAFETY: by the contract of loading, buffers and values belong to the driver until the library is
        // unloaded.
        unsafe { library.answers.again() };
        Ok(())
    }

    cuLibraryGetKernel(kernel, library, name) |call| {
        let id = find(call, library)?;
        // SAFETY: the caller passes a C string.
        let name = unsafe { text(name) }?;
        if !call.libraries.loaded[&id].ptx.kernels.contains_key(&name) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let found = kernel_of(call, id, name);
        // SAFETY: the caller passes a place for the kernel.
        unsafe { put(kernel, pointer(call.libraries.kernels[&found].handle)) }
    }

    cuLibraryGetKernelCount(count, library) |call| {
        let id = find(call, library)?;
        let found = call.libraries.loaded[&id].ptx.kernels.len();
        // SAFETY: the caller passes a place for the number.
        unsafe { put(count, found as c_uint) }
    }

    cuLibraryEnumerateKernels(kernels, count, library) |call| {
        let id = find(call, library)?;
        let names: Vec<String> = call.libraries.loaded[&id].ptx.kernels.keys().cloned().collect();
        for (at, name) in names.into_iter().take(count as usize).enumerate() {
            let found = kernel_of(call, id, name);
            // SAFETY: the caller passes places for `count` kernels.
            unsafe { put(kernels.wrapping_add(at), pointer(call.libraries.kernels[&found].handle)) }?;
        }
        Ok(())
    }

    cuKernelGetName(name, kernel) |call| {
        let id = find_kernel(call, kernel)?;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(name, call.libraries.kernels[&id].symbol.as_ptr()) }
    }

    cuKernelGetFunction(function, kernel) |call| {
        let context = call.current()?;
        let id = find_kernel(call, kernel)?;
        let kernel = &call.libraries.kernels[&id];
        let (library, name) = (kernel.library, kernel.name.clone());
        let module = module_in(call, library, context)?;
        let found = function_of(call, module, name)?;
        // SAFETY: the caller passes a place for the function.
        unsafe { put(function, pointer(call.functions[&found].handle)) }
    }

    cuLibraryGetGlobal(address, bytes, library, name) |call| {
        let context = call.current()?;
        let id = find(call, library)?;
        // SAFETY: the caller passes a C string.
        let name = unsafe { text(name) }?;
        let module = module_in(call, id, context)?;
        let found = call.modules[&module].globals.get(&name).copied();
        let (_, start, size) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: the caller passes a place for the address, or null.
        unsafe { put_if(address, start) };
        // SAFETY: the caller passes a place for the size, or null.
        unsafe { put_if(bytes, size) };
        Ok(())
    }
}

fn find(call: &mut Call, library: CUlibrary) -> Outcome<Id> {
    let found = call.libraries.loaded.resolve(library);
    call.found(found, "library", library.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
}

fn find_kernel(call: &mut Call, kernel: CUkernel) -> Outcome<Id> {
    let found = call.libraries.kernels.resolve(kernel);
    call.found(found, "kernel", kernel.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
}

/// Returns the library's kernel of that name.
fn kernel_of(call: &mut Call, library: Id, name: String) -> Id {
    if let Some(&known) = call.libraries.loaded[&library].kernels.get(&name) {
        return known;
    }
    let id = call.new_id();
    if let Some(library) = call.libraries.loaded.get_mut(&library) {
        library.kernels.insert(name.clone(), id);
    }
    let symbol = CString::new(name.clone()).unwrap_or_default();
    call.libraries.kernels.add(id, Kernel { library, name, symbol });
    id
}

/// Returns the library's module in a context, which its first use there loads.
fn module_in(call: &mut Call, library: Id, context: Id) -> Outcome<Id> {
    let known = call.libraries.loaded[&library].modules.get(&context).copied();
    if let Some(module) = known.filter(|module| call.modules.contains_key(module)) {
        return Ok(module);
    }
    call.forbid_in_capture()?;
    let ptx = call.libraries.loaded[&library].ptx.clone();
    let module = load_into(call, context, ptx)?;
    if let Some(library) = call.libraries.loaded.get_mut(&library) {
        library.modules.insert(context, module);
    }
    Ok(module)
}
