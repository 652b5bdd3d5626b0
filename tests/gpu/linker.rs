//! The driver's linker: code in two pieces, and its messages about pieces that do not fit.

use std::sync::Once;

use cuda_core::{
    Context, ContextFlags, Device, Error, Function, Module, ModuleError, Result,
    jit::{JitOptions, LinkInput, Linker},
};
use cuda_sim::register_kernel;
use support::{compile_log, context, gpu_test, refusal};

/// A kernel that calls a function which another text defines.
const KERNEL: &str = "
.version 7.0
.target sm_52
.address_size 64

.extern .func (.param .b32 result) twice(.param .b32 x);

.visible .entry store_twice(.param .u64 to, .param .u32 x)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [x];
    cvta.to.global.u64 %rd2, %rd1;
    {
        .param .b32 argument;
        .param .b32 returned;
        st.param.b32 [argument], %r1;
        call.uni (returned), twice, (argument);
        ld.param.b32 %r2, [returned];
    }
    st.global.u32 [%rd2], %r2;
    ret;
}
";

/// The text that defines the function.
const FUNCTION: &str = "
.version 7.0
.target sm_52
.address_size 64

.visible .func (.param .b32 result) twice(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
";

fn first() -> Result<Context> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_kernel(
            "store_twice",
            |a| vec![a.writes::<u32>(0, 1)],
            |a, memory| memory.slice_mut(a.address(0), |to| to[0] = 2 * a.value::<u32>(1)),
        );
    });
    Device::get(0)?.context()
}

fn stores_twice(function: &Function) -> Result<()> {
    let stream = function.context().create_stream()?;
    let mut x = stream.alloc_zeroed::<u32>(1)?;
    // SAFETY: the kernel stores one word.
    unsafe { stream.kernel(function).block(1).arg(&mut x).arg(21u32).launch() }?;
    let mut back = [0];
    stream.download(&x, &mut back)?;
    assert_eq!(back, [42]);
    Ok(())
}

gpu_test! {
    needs 1;
    fn m_two_texts_are_linked() -> Result<()> {
        let context = first()?;
        let mut linker = Linker::new_with(&context, &JitOptions::new().optimization_level(3))?;
        assert_eq!(linker.context(), &context);
        assert!(!linker.as_raw().is_null());
        linker.add_ptx(KERNEL)?.add_ptx(FUNCTION)?;
        assert_eq!(context::current(), std::ptr::null_mut());
        let cubin = linker.complete()?;
        assert_eq!(context::current(), std::ptr::null_mut());
        stores_twice(&Module::from_cubin(&context, &cubin)?.function("store_twice")?)?;
        // Without the function the kernel does not link.
        let unresolved = compile_log(Module::from_ptx(&context, KERNEL));
        assert!(unresolved.contains("twice"), "{unresolved}");
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn m_what_was_linked_is_a_library() -> Result<()> {
        let context = first()?;
        let mut linker = Linker::new(&context)?;
        linker.add_ptx(KERNEL)?.add_ptx(FUNCTION)?;
        let library = cuda_core::Library::from_cubin(&linker.complete()?)?;
        stores_twice(&library.kernel("store_twice")?.function(&context)?)
    }
}

gpu_test! {
    needs 1;
    fn m11_bad_link() -> Result<()> {
        let context = first()?;
        let mut linker = Linker::new(&context)?;
        let refused = linker.add_ptx("int main;").map(drop);
        assert!(refusal(refused).contains(".version"));
        let refused = linker.add_ptx(".version 7.0\0.target sm_52").map(drop);
        assert!(refusal(refused).contains("NUL byte"));
        // SAFETY: the image is empty.
        let refused = unsafe { linker.add_image(LinkInput::Fatbin, &[]) }.map(drop);
        assert!(refusal(refused).contains("given"));
        // SAFETY: there is no such file.
        let refused = unsafe { linker.add_file(LinkInput::Library, "no such file") }.map(drop);
        assert!(matches!(refused, Err(Error::Module(ref it)) if matches!(**it, ModuleError::File { .. })), "{refused:?}");
        let nothing = linker.complete();
        assert!(refusal(nothing).contains("given"));

        let mut linker = Linker::new(&context)?;
        let wrong = FUNCTION.replace("add.u32", "oops.u32");
        let said = compile_log(linker.add_ptx(&wrong).map(drop));
        assert!(said.contains("oops"), "{said}");
        linker.close()?;

        let mut linker = Linker::new(&context)?;
        linker.add_ptx(KERNEL)?;
        let said = compile_log(linker.complete());
        assert!(said.contains("twice"), "{said}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s08_a_linker_goes_while_another_context_is_current() -> Result<()> {
        let primary = first()?;
        let created = Context::new(Device::get(0)?, ContextFlags::default())?;
        let [mut used, mut unused] = [Linker::new(&created)?, Linker::new(&created)?];
        // Objects made in the context keep it alive.
        drop(created);
        let guard = primary.enter()?;
        used.add_ptx(KERNEL)?;
        unused.add_ptx(FUNCTION)?;
        drop(unused);
        assert_eq!(Context::current()?, Some(primary.clone()));
        used.add_ptx(FUNCTION)?;
        let cubin = used.complete()?;
        assert_eq!(Context::current()?, Some(primary.clone()));
        guard.restore()?;
        stores_twice(&Module::from_cubin(&primary, &cubin)?.function("store_twice")?)
    }
}

gpu_test! {
    needs 1;
    fn m_a_linker_goes_in_a_host_function() -> Result<()> {
        let context = first()?;
        let mut linker = Linker::new(&context)?;
        linker.add_ptx(FUNCTION)?;
        let stream = context.create_stream()?;
        stream.launch_host_func(move || {
            let refused = linker.add_ptx(KERNEL).map(drop);
            assert!(matches!(refused, Err(Error::InCallback)), "{refused:?}");
            drop(linker);
        })?;
        stream.synchronize()
    }
}
