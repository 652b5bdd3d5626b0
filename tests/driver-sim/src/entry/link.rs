//! Linking. The inputs are texts, and so is the resulting image.

use cuda_sys::*;

use super::jit::{Answers, Options};
use super::module::text;
use crate::call::{Call, Outcome, put, put_if};
use crate::handle::{Id, pointer};
use crate::module::link::{Input, Link};

/// The text that stands in for an archive, `libcudadevrt.a`, whose machine code means nothing here.
const DEVICE_RUNTIME: &str = ".version 7.0\n.target sm_70\n.visible .func \
    cudaGraphSetConditional(.param .b64 handle, .param .b32 value) { ret; }";

entries! {
    cuLinkCreate_v2(count, keys, values, state) |call| {
        let context = call.current()?;
        if state.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` keys and values.
        let options = unsafe { Options::read(count as usize, keys, values) }?;
        let answers = Answers::kept(options, values);
        let id = call.new_id();
        let link = Link { context, answers, inputs: Vec::new(), image: Vec::new() };
        let handle = call.links.add(id, link);
        // SAFETY: not null, so a place for the state.
        unsafe { put(state, pointer(handle)) }
    }

    cuLinkAddData_v2(state, kind, data, bytes, name, count, _keys, _values) |call| {
        call.current()?;
        let id = find(call, state)?;
        // The safe layer passes no options for a single input.
        if data.is_null() || bytes == 0 || count != 0 || kind.0 > CU_JIT_INPUT_LIBRARY.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let name = if name.is_null() {
            "<unnamed>".to_owned()
        } else {
            // SAFETY: not null, so the caller passes a C string.
            unsafe { text(name) }?
        };
        // SAFETY: the caller passes `bytes` bytes.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
        let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = match kind {
            CU_JIT_INPUT_LIBRARY if data.starts_with(b"!<arch>\n") => DEVICE_RUNTIME.to_owned(),
            _ => String::from_utf8_lossy(text).into_owned(),
        };
        answer(call, id, |link| {
            let ptx = link.answers.options().read_text(&text)?;
            link.inputs.push(Input { name, text, ptx });
            Ok(())
        })
    }

    cuLinkComplete(state, image, bytes) |call| {
        call.current()?;
        let id = find(call, state)?;
        let (mut start, mut len) = (std::ptr::null_mut(), 0);
        answer(call, id, |link| {
            link.image = link.link().map_err(|complaints| {
                link.answers.options().complain(&complaints);
                CUDA_ERROR_INVALID_IMAGE
            })?;
            (start, len) = (link.image.as_mut_ptr(), link.image.len());
            Ok(())
        })?;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(image, start.cast()) }?;
        // SAFETY: the caller passes a place for the size, or null.
        unsafe { put_if(bytes, len) };
        Ok(())
    }

    cuLinkDestroy(state) |call| {
        call.current()?;
        let id = find(call, state)?;
        if let Some(link) = call.links.remove(&id) {
            // SAFETY: buffers and values belong to the driver until the state is destroyed.
            unsafe { link.answers.again() };
        }
        Ok(())
    }
}

fn find(call: &mut Call, state: CUlinkState) -> Outcome<Id> {
    let found = call.links.resolve(state);
    call.found(found, "link state", state.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
}

/// Runs an operation on a linker, and writes its log to the caller's options.
fn answer(call: &mut Call, id: Id, f: impl FnOnce(&mut Link) -> Outcome) -> Outcome {
    let link = call.links.get_mut(&id);
    let link = link.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let outcome = f(link);
    // SAFETY: buffers and values belong to the driver until the state is destroyed.
    unsafe { link.answers.again() };
    outcome
}
