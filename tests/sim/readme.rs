//! The README's kernel where there is no NVRTC: what it would compile is a text that declares the same
//! kernel, and a closure does the kernel's work. `tests/gpu/readme.rs` compiles it.

use cuda_core::Result;
use cuda_sim::register_kernel;
use support::simulator;

/// PTX with a kernel as the source declares it, whose body is not executed.
fn compile(source: &str) -> Result<String> {
    let declared = source.split_once("__global__ void ").and_then(|(_, rest)| rest.split_once(')'));
    let (declared, _body) = declared.expect("the source declares a kernel");
    let (name, parameters) = declared.split_once('(').expect("the kernel has parameters");
    let sized = |(number, parameter): (usize, &str)| {
        assert!(parameter.contains('*'), "the size of `{parameter}`");
        format!(".param .u64 parameter_{number}")
    };
    let sized: Vec<_> = parameters.split(',').enumerate().map(sized).collect();
    let sized = sized.join(", ");
    Ok(format!(".version 7.0\n.target sm_70\n.visible .entry {name}({sized}) {{ trap; }}\n"))
}

#[test]
fn the_readmes_kernel_without_nvrtc() -> Result<()> {
    let session = simulator();
    register_kernel(
        "twice",
        |launch| vec![launch.writes::<f32>(0, launch.block()[0] as usize)],
        |launch, memory| {
            memory
                .slice_mut(launch.address(0), |x: &mut [f32]| x.iter_mut().for_each(|x| *x *= 2.0))
        },
    );
    let example: Result<()> = include!(concat!(env!("OUT_DIR"), "/readme_2_without_nvrtc.rs"));
    example?;
    cuda_core::trim()?;
    session.assert_clean();
    Ok(())
}
