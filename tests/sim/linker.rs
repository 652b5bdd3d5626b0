//! The linker, with a driver whose answers are known.

use cuda_core::{
    Device, Error, Result,
    jit::{JitOptions, LinkInput, Linker},
};
use support::{compile_log, simulator};

const CALLER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .extern .func helper();\n.visible .entry caller()\n{\n    call helper;\n    ret;\n}\n";

const HELPER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .func helper()\n{\n    ret;\n}\n";

#[test]
fn m_the_linker_says_what_is_new() -> Result<()> {
    let session = simulator();
    let context = Device::get(0)?.context()?;
    let mut linker = Linker::new(&context)?;
    let wrong = |word| HELPER.replace("    ret", word);
    let said = compile_log(linker.add_ptx(wrong("oops")).map(drop));
    assert!(said.contains("'oops'"), "{said}");
    let said = compile_log(linker.add_ptx(wrong("whoops")).map(drop));
    assert!(said.contains("'whoops'") && !said.contains("'oops'"), "{said}");
    linker.add_ptx(CALLER)?;
    // Earlier messages are not reported as the reason for this failure.
    session.fail_nth(Some("cuLinkAddData_v2"), 1, cuda_sys::CUDA_ERROR_OUT_OF_MEMORY);
    let refused = linker.add_ptx(HELPER).map(drop);
    assert!(matches!(refused, Err(Error::Driver { .. })), "{refused:?}");
    let said = compile_log(linker.complete());
    assert_eq!(said, "error   : Undefined reference to 'helper' in 'input 3'");
    session.assert_clean();
    Ok(())
}

#[test]
fn m_the_linker_names_files_by_their_path() -> Result<()> {
    let session = simulator();
    let path = std::env::temp_dir().join(format!("cuda-core-caller-{}.ptx", std::process::id()));
    std::fs::write(&path, CALLER).expect("a file");
    let mut linker = Linker::new(&Device::get(0)?.context()?)?;
    // SAFETY: the simulated driver reads every image as PTX.
    unsafe { linker.add_file(LinkInput::Object, &path) }?;
    std::fs::remove_file(&path).expect("it is there");
    let said = compile_log(linker.complete());
    assert_eq!(said, format!("error   : Undefined reference to 'helper' in '{}'", path.display()));
    session.assert_clean();
    Ok(())
}

#[test]
fn m_a_function_is_defined_once() -> Result<()> {
    let session = simulator();
    let mut linker = Linker::new(&Device::get(0)?.context()?)?;
    linker.add_ptx(HELPER)?.add_ptx(CALLER)?.add_ptx(HELPER)?;
    let said = compile_log(linker.complete());
    assert!(said.contains("Multiple definition of 'helper' in 'input 3'"), "{said}");
    session.assert_clean();
    Ok(())
}

/// The simulated driver writes to the buffers in every call, and once more when the linker is destroyed; Miri
/// checks that they still exist.
#[test]
fn s21_the_linker_may_answer_until_it_goes() -> Result<()> {
    let session = simulator();
    let context = Device::get(0)?.context()?;
    let verbose = JitOptions::new().verbose(true);
    let mut linker = Linker::new_with(&context, &verbose)?;
    linker.add_ptx(CALLER)?;
    let mut moved = Some(linker);
    let mut linker = moved.take().expect("a linker");
    linker.add_ptx(HELPER)?;
    let cubin = linker.complete()?;
    assert_eq!(session.calls("cuLinkDestroy"), 1);
    assert!(cubin.log().contains("caller"), "{}", cubin.log());
    let closed = Linker::new_with(&context, &verbose)?.close();
    closed?;
    drop(Linker::new_with(&context, &verbose)?);
    assert_eq!(session.calls("cuLinkDestroy"), 3);
    session.assert_clean();
    Ok(())
}

/// The image was completed, but the linker could not be destroyed.
#[test]
fn m_an_image_is_not_lost_with_its_linker() -> Result<()> {
    let session = simulator();
    let drops = support::DropReports::listen();
    let mut linker = Linker::new(&Device::get(0)?.context()?)?;
    linker.add_ptx(HELPER)?;
    session.fail_nth(Some("cuLinkDestroy"), 1, cuda_sys::CUDA_ERROR_LAUNCH_FAILED);
    let cubin = linker.complete()?;
    assert!(!cubin.as_bytes().is_empty());
    let reported = drops.end();
    assert_eq!(reported.failures.len(), 1, "{reported:?}");
    assert_eq!(reported.failures[0].resource, cuda_core::Resource::Linker);
    support::judge::take_away(&session, session.leaks());
    session.assert_clean();
    Ok(())
}
