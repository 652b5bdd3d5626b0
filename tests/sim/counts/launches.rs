//! A launch costs one call, whatever its arguments.

use cuda_core::PinnedBuffer;
use support::kernels;

use super::*;

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
        // The first launch of each asks for its limits.
        // SAFETY: no parameter.
        unsafe { stream.kernel(&nothing).launch() }?;
        // SAFETY: six addresses, of which nothing is made.
        unsafe {
            stream
                .kernel(&six)
                .arg(&*a)
                .arg(&b)
                .arg(&c)
                .arg(&*a)
                .arg(&b)
                .arg(&c)
                .launch()
        }?;
        // SAFETY: 16 elements.
        unsafe {
            stream
                .kernel(&add_one)
                .elements(16)
                .arg(&mut *a)
                .arg(16u32)
                .launch()
        }?;
        for _ in 0..3 {
            // SAFETY: no parameter.
            driver.expect([LAUNCH], || unsafe { stream.kernel(&nothing).launch() })?;
            let mut launch = stream.kernel(&six);
            launch.arg(&*a).arg(&b).arg(&c).arg(&*a).arg(&b).arg(&c);
            // SAFETY: six addresses, of which nothing is made.
            driver.expect([LAUNCH], || unsafe { launch.launch() })?;
            let mut launch = stream.kernel(&add_one);
            launch.elements(16).arg(&mut *a).arg(16u32);
            // SAFETY: 16 elements.
            driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        }
        // A real dependency costs its record and its wait, once.
        other.checkpoint()?;
        let mut launch = other.kernel(&add_one);
        launch.elements(16).arg(&mut *a).arg(16u32);
        let first = driver.session.mark();
        // SAFETY: 16 elements.
        unsafe { launch.launch() }?;
        let calls = driver.session.names_since(first);
        assert_eq!(calls.last(), Some(&LAUNCH));
        assert!(calls.contains(&WAIT), "{calls:?}");
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })?;
        // Pinned memory has its address asked for.
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        let mut launch = stream.kernel(&add_one);
        driver.expect([GET, SET, "cuMemHostGetDevicePointer_v2", SET], || {
            launch.elements(16).arg(&mut host).arg(16u32);
            Ok(())
        })?;
        // SAFETY: 16 elements.
        driver.expect([LAUNCH], || unsafe { launch.launch() })
    });
}

#[test]
fn what_is_refused_costs_nothing() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let add_one = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        // SAFETY: 16 elements.
        unsafe {
            stream
                .kernel(&add_one)
                .elements(16)
                .arg(&mut x)
                .arg(16u32)
                .launch()
        }?;
        driver.expect([], || {
            let mut launch = stream.kernel(&add_one);
            launch.arg(&mut x).arg(16u32);
            for (grid, block) in [(0, 1), (1, 0), (1, 1025), (u32::MAX, 1)] {
                launch.grid(grid).block(block);
                // SAFETY: refused.
                assert!(unsafe { launch.launch() }.is_err(), "{grid}, {block}");
            }
            // SAFETY: refused: one argument too many.
            assert!(unsafe { launch.grid(1).block(1).arg(1u8).launch() }.is_err());
            Ok(())
        })
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
        let global = driver.expect([GET, "cuModuleGetGlobal_v2"], || {
            module.global::<u32>("counter")
        })?;
        driver.expect([], || {
            drop((function, module));
            Ok(())
        })?;
        driver.expect([GET, EXCHANGE, "cuModuleUnload", EXCHANGE], || {
            drop(global);
            Ok(())
        })
    });
}
