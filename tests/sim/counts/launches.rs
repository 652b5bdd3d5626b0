//! A launch makes one call, whatever its arguments.

use std::sync::Mutex;

use cuda_core::{AnyThread, ContextFlags, Error, Launch, Library, MemorySyncDomain, PinnedBuffer};
use cuda_sim::{LaunchAttributes, register_kernel};
use support::kernels;

use super::*;

/// A launch of a kernel without parameters.
type Bare<'a> = Launch<'a, AnyThread>;

const LAUNCH: &str = "cuLaunchKernelEx";

#[test]
fn launches_cost_1() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let module = kernels::load(&context)?;
        let nothing = module.function("nothing")?;
        let six = module.function("take_six")?;
        let add_one = module.function("add_one")?;
        let [mut a, b, c] = [0; 3].map(|_| stream.alloc_zeroed::<u32>(16));
        let (a, b, c) = (a.as_mut().expect("memory"), b?, c?);
        // The first launch of each function queries its limits.
        // SAFETY: no parameter.
        unsafe { stream.kernel(&nothing).block(1).launch() }?;
        // SAFETY: six addresses, which the kernel ignores.
        unsafe {
            stream.kernel(&six).block(1).arg(&*a).arg(&b).arg(&c).arg(&*a).arg(&b).arg(&c).launch()
        }?;
        // SAFETY: 16 elements.
        unsafe { stream.kernel(&add_one).elements(16).arg(&mut *a).arg(16u32).launch() }?;
        for _ in 0..3 {
            // SAFETY: no parameter.
            driver.expect([LAUNCH], || unsafe { stream.kernel(&nothing).block(1).launch() })?;
            let mut launch =
                stream.kernel(&six).block(1).arg(&*a).arg(&b).arg(&c).arg(&*a).arg(&b).arg(&c);
            // SAFETY: six addresses, which the kernel ignores.
            driver.expect([LAUNCH], || unsafe { launch.launch() })?;
            let mut launch = stream.kernel(&add_one).elements(16).arg(&mut *a).arg(16u32);
            // SAFETY: 16 elements.
            driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        }
        // A real dependency needs a record and a wait, once.
        other.checkpoint()?;
        let mut launch = other.kernel(&add_one).elements(16).arg(&mut *a).arg(16u32);
        let first = driver.session.mark();
        // SAFETY: 16 elements.
        unsafe { launch.launch() }?;
        let calls = driver.session.names_since(first);
        assert_eq!(calls.last(), Some(&LAUNCH));
        assert!(calls.contains(&WAIT), "{calls:?}");
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        // Devices use the host's addresses.
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        host.device_ptr()?;
        let mut launch =
            driver.expect([], || stream.kernel(&add_one).elements(16).arg(&mut host).arg(16u32));
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })
    });
}

/// The first launch of a function queries its limits under one guard, and the device's limits if no launch on
/// the device did before. The module remembers both, and the function.
#[test]
fn a_function_is_asked_for_once() {
    const ATTRIBUTE: &str = "cuFuncGetAttribute";
    const PARAMETER: &str = "cuFuncGetParamInfo";
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let module = kernels::load(&context)?;
        // Queries the device's limits, unless another test did.
        // SAFETY: no parameter.
        unsafe { stream.kernel(&module.function("nothing")?).block(1).launch() }?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        let found = entered(["cuModuleGetFunction"]);
        let add_one = driver.expect(found, || module.function("add_one"))?;
        let asked = [ATTRIBUTE, ATTRIBUTE, ATTRIBUTE, PARAMETER, PARAMETER, PARAMETER];
        let mut launch = stream.kernel(&add_one).block(16).arg(&mut x).arg(16u32);
        // SAFETY: 16 elements.
        driver.expect([entered(asked), vec![LAUNCH]].concat(), || unsafe { launch.launch() })?;
        drop(add_one);
        let again = driver.expect([], || module.function("add_one"))?;
        let mut launch = stream.kernel(&again).block(16).arg(&mut x).arg(16u32);
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        driver.expect([], || again.check_parameters(&[8, 4]))?;
        let all = [[GET, SET].as_slice(), &[ATTRIBUTE; 10], &[SET]].concat();
        driver.expect(all, || again.attributes())?;
        // A missing name is queried each time, and the error lists some existing names.
        for _ in 0..2 {
            let missing = driver.session.mark();
            assert!(module.function("missing").is_err());
            let listed = entered(["cuModuleGetFunctionCount", "cuModuleEnumerateFunctions"]);
            let (end, listed) = listed.split_last().expect("a call");
            let names = [GET, "cuFuncGetName"].repeat(8);
            let calls = [&entered(["cuModuleGetFunction"]), listed, &names, &[*end]].concat();
            assert_eq!(driver.session.names_since(missing), calls);
        }
        Ok(())
    });
}

/// A library remembers its kernels, their functions and the functions' limits, without keeping a context
/// alive.
#[test]
fn a_librarys_kernel_is_asked_for_once() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        kernels::register();
        let library = Library::from_ptx(kernels::PTX)?;
        let add_one = driver.expect(["cuLibraryGetKernel"], || library.kernel("add_one"))?;
        let found = entered([EXCHANGE, "cuKernelGetFunction", EXCHANGE]);
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        let first = driver.expect(found.clone(), || stream.kernel(&add_one).block(16));
        let mut first = first.arg(&mut x).arg(16u32);
        // SAFETY: 16 elements. The first launch queries the limits.
        unsafe { first.launch() }?;
        drop(first);
        let again = driver.expect([], || library.kernel("add_one"))?;
        let mut launch = driver.expect([], || stream.kernel(&again).block(16));
        launch = launch.arg(&mut x).arg(16u32);
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        let function = driver.expect([], || again.function(&context))?;
        driver.expect([], || function.check_parameters(&[8, 4]))?;
        // A later context may have the handle of a destroyed one.
        for _ in 0..2 {
            let created = Context::new(context.device(), ContextFlags::default())?;
            driver.expect(found.clone(), || again.function(&created)).map(drop)?;
            driver.expect([], || again.function(&created)).map(drop)?;
            let mark = driver.session.mark();
            drop(created);
            assert!(driver.session.names_since(mark).contains(&"cuCtxDestroy_v2"));
        }
        // A missing name is queried each time, and the error lists some existing names.
        for _ in 0..2 {
            let missing = driver.session.mark();
            let error = library.kernel("missing").expect_err("there is none").to_string();
            assert!(error.contains("; it has `add_one`, "), "{error}");
            let listed =
                ["cuLibraryGetKernel", "cuLibraryGetKernelCount", "cuLibraryEnumerateKernels"];
            let calls = [listed.as_slice(), &["cuKernelGetName"; 8]].concat();
            assert_eq!(driver.session.names_since(missing), calls);
        }
        Ok(())
    });
}

/// The launch reports a kernel that was not found, and then makes no call.
#[test]
fn a_launch_reports_that_its_kernel_was_not_found() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        kernels::register();
        let nothing = Library::from_ptx(kernels::PTX)?.kernel("nothing")?;
        let code = cuda_sys::CUDA_ERROR_NO_BINARY_FOR_GPU;
        driver.session.fail_nth(Some("cuKernelGetFunction"), 1, code);
        let mut launch = stream.kernel(&nothing).block(1);
        let mark = driver.session.mark();
        // SAFETY: the launch is refused.
        let refused = unsafe { launch.launch() };
        let named = matches!(
            refused,
            Err(Error::Module(ref it)) if matches!(**it, cuda_core::ModuleError::Compile { op: "cuKernelGetFunction", .. })
        );
        assert!(named, "{refused:?}");
        assert!(driver.session.names_since(mark).is_empty());
        // SAFETY: no parameter.
        unsafe { stream.kernel(&nothing).block(1).launch() }
    });
}

/// Loading a typed kernel queries what its first launch would query.
#[test]
fn a_typed_kernel_asks_when_it_is_loaded() {
    cuda_core::kernel! {
        fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
    }
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let module = kernels::load(&context)?;
        let x = stream.alloc_zeroed::<f32>(16)?;
        let mut y = stream.alloc_zeroed::<f32>(16)?;
        let typed = saxpy::load(&module)?;
        driver.expect([LAUNCH], || {
            // SAFETY: both have 16 elements.
            unsafe { typed.on(&stream, 2.0, &x, &mut y, 16).elements(16).launch() }
        })?;
        driver.expect([], || saxpy::load(&module)).map(drop)
    });
}

#[test]
fn what_is_refused_costs_nothing() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        // SAFETY: 16 elements.
        unsafe { stream.kernel(&add_one).elements(16).arg(&mut x).arg(16u32).launch() }?;
        driver.expect([], || {
            let mut launch = stream.kernel(&add_one).block(1).arg(&mut x).arg(16u32);
            for (grid, block) in [(0, 1), (1, 0), (1, 1025), (u32::MAX, 1)] {
                launch = launch.grid(grid).block(block);
                // SAFETY: the launch is refused.
                assert!(unsafe { launch.launch() }.is_err(), "{grid}, {block}");
            }
            // SAFETY: the launch is refused: it has one argument too many.
            assert!(unsafe { launch.grid(1).block(1).arg(1u8).launch() }.is_err());
        });
        Ok(())
    });
}

#[test]
fn linking_costs_a_guard_a_call() {
    const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry nothing() { ret; }\n";
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        let make = entered([EXCHANGE, "cuLinkCreate_v2", EXCHANGE]);
        let mut linker = driver.expect(make.clone(), || cuda_core::jit::Linker::new(&context))?;
        let add = entered([EXCHANGE, "cuLinkAddData_v2", EXCHANGE]);
        driver.expect(add, || linker.add_ptx(PTX).map(drop))?;
        driver.refused(|| linker.add_ptx("no PTX").map(drop));
        let complete = entered([EXCHANGE, "cuLinkComplete", EXCHANGE]);
        let destroy = entered([EXCHANGE, "cuLinkDestroy", EXCHANGE]);
        let both = [complete, destroy.clone()].concat();
        driver.expect(both, || linker.complete())?;
        let unused = driver.expect(make, || cuda_core::jit::Linker::new(&context))?;
        Ok(driver.expect(destroy, || unused.close())?)
    });
}

#[test]
fn loading_and_unloading() {
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        kernels::register();
        let _current = context.enter()?;
        let module = driver.expect([GET, EXCHANGE, "cuModuleLoadDataEx", EXCHANGE], || {
            cuda_core::Module::from_ptx(&context, kernels::PTX)
        })?;
        let function =
            driver.expect([GET, "cuModuleGetFunction"], || module.function("nothing"))?;
        let asked = [GET, "cuModuleGetGlobal_v2", "cuPointerGetAttributes"];
        let global = driver.expect(asked, || module.global::<u32>("counter"))?;
        driver.expect([], || drop((function, module)));
        driver.expect([GET, EXCHANGE, "cuModuleUnload", EXCHANGE], || drop(global));
        Ok(())
    });
}

/// Each method of the builder adds an attribute to the driver's list.
#[test]
fn m_attributes_arrive() {
    const PTX: &str = "\
.version 7.0
.target sm_50
.address_size 64
.visible .entry attributed() { ret; }
";
    static SEEN: Mutex<Vec<LaunchAttributes>> = Mutex::new(Vec::new());
    register_kernel(
        "attributed",
        |_| Vec::new(),
        |arguments, _| {
            SEEN.lock().expect("no panic").push(arguments.attributes());
            Ok(())
        },
    );
    Counted::run(|_| {
        let (context, stream, _) = two_streams()?;
        let module = cuda_core::Module::from_ptx(&context, PTX)?;
        let kernel = module.function("attributed")?;
        let launched = |attributes: fn(Bare<'_>) -> Bare<'_>| {
            // SAFETY: no parameter.
            unsafe { attributes(stream.kernel(&kernel).block(1).grid(8)).launch() }?;
            stream.synchronize()?;
            let seen = SEEN.lock().expect("no panic").pop();
            Ok::<_, cuda_core::Error>(seen.expect("it ran"))
        };
        let none = LaunchAttributes::default();
        assert_eq!(launched(|launch| launch)?, none);
        let seen = launched(|launch| launch.priority(-5))?;
        assert_eq!(seen, LaunchAttributes { priority: Some(-5), ..none });
        let seen = launched(|launch| launch.programmatic())?;
        assert_eq!(seen, LaunchAttributes { programmatic: true, ..none });
        let seen = launched(|launch| launch.cooperative())?;
        assert_eq!(seen, LaunchAttributes { cooperative: true, ..none });
        let seen = launched(|launch| launch.cluster((4, 1, 1)))?;
        assert_eq!(seen, LaunchAttributes { cluster: Some([4, 1, 1]), ..none });
        let seen = launched(|launch| launch.memory_sync_domain(MemorySyncDomain::Default))?;
        assert_eq!(seen, none);
        let seen = launched(|launch| launch.memory_sync_domain(MemorySyncDomain::Remote))?;
        assert_eq!(seen, LaunchAttributes { memory_sync_domain: 1, ..none });
        // An attribute set twice has the last value; the other attributes remain.
        let seen = launched(|launch| launch.priority(-1).cooperative().priority(-2))?;
        let both = LaunchAttributes { priority: Some(-2), cooperative: true, ..none };
        assert_eq!(seen, both);
        Ok(())
    });
}
