//! Libraries, with a driver that compiles lazily.

use std::time::Duration;

use cuda_core::{Context, ContextFlags, Device, Error, Library, Module, Result, jit::JitOptions};
use cuda_sys::CUDA_ERROR_INVALID_PTX;
use support::{kernels, simulator};

#[test]
fn s21_the_compiler_speaks_of_a_library() -> Result<()> {
    let session = simulator();
    let options = JitOptions::new().verbose(true);
    let library = Library::from_ptx_with(kernels::PTX, &options)?;
    assert!(library.log().contains("add_one"), "{}", library.log());
    assert!(library.wall_time() > Duration::ZERO);
    drop(library);
    let quiet = Library::from_ptx(kernels::PTX)?;
    assert_eq!(quiet.log(), "");
    drop(quiet);
    let wrong = ".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry f()\n{\n    oops;\n    ret;\n}\n";
    match Library::from_ptx(wrong) {
        Err(error @ Error::Module(_)) => {
            assert_eq!(error.code(), Some(CUDA_ERROR_INVALID_PTX));
            assert!(error.to_string().contains("oops"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    session.assert_clean();
    Ok(())
}

/// Unlike a module, a library belongs to no context; any context may have the first launch of its kernels.
#[test]
fn a_library_keeps_no_context_that_it_was_launched_in() -> Result<()> {
    let session = simulator();
    let library = Library::from_ptx(SMALL)?;
    let kernel = library.kernel("nothing")?;
    for _ in 0..3 {
        let context = Context::new(Device::get(0)?, ContextFlags::default())?;
        for _ in 0..2 {
            let stream = context.create_stream()?;
            // SAFETY: the kernel has no parameter and touches nothing.
            unsafe { stream.kernel(&kernel).block(1).launch() }?;
            stream.synchronize()?;
        }
        context.synchronize()?;
        cuda_core::drops::flush();
        context.close()?;
    }
    drop((kernel, library));
    session.assert_clean();
    Ok(())
}

const SMALL: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .entry nothing()\n{\n    ret;\n}\n";

/// The simulated driver writes to the buffers once more at the unload; Miri checks that they still exist.
#[test]
fn s21_the_compiler_may_answer_until_the_code_goes() -> Result<()> {
    let session = simulator();
    let options = JitOptions::new().verbose(true);
    let context = Device::get(0)?.context()?;
    let closed = Module::from_ptx_with(&context, SMALL, &options)?.close();
    closed?;
    drop(Module::from_ptx_with(&context, SMALL, &options)?);
    let closed = Library::from_ptx_with(SMALL, &options)?.close();
    closed?;
    drop(Library::from_ptx_with(SMALL, &options)?);
    drop(context);
    session.assert_clean();
    Ok(())
}
