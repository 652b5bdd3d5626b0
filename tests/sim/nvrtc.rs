//! NVRTC, which needs no device: run where a library of it is at hand.

use cuda_core::nvrtc::{self, Program};
use cuda_core::{Device, Error, Module, Result, Version};
use cuda_sim::{Region, register_kernel};

const ADD_ONE: &str =
    r#"extern "C" __global__ void nvrtc_add_one(float *x) { x[threadIdx.x] += 1; }"#;

#[test]
#[ignore = "needs NVRTC: CUDA_CORE_NVRTC=<library>"]
fn a_string_is_compiled_and_launched() -> Result<()> {
    let session = support::simulator();
    register_kernel(
        "nvrtc_add_one",
        |a| vec![Region::write(a.u64(0), 4 * a.threads() as usize)],
        |a, memory| {
            for index in 0..a.threads() {
                let address = a.u64(0) + 4 * index;
                let x = f32::from_bits(memory.read_u32(address)?);
                memory.write_u32(address, (x + 1.0).to_bits())?;
            }
            Ok(())
        },
    );
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let ptx = nvrtc::compile(ADD_ONE)?;
    let add_one = Module::from_ptx(&device.context()?, &ptx)?.function("nvrtc_add_one")?;
    let mut x = stream.alloc_zeroed::<f32>(32)?;
    // SAFETY: an element for each of the 32 threads.
    unsafe { stream.kernel(&add_one).block(32).arg(&mut x).launch() }?;
    let mut back = [0.0; 32];
    stream.download_to(&x, &mut back)?;
    assert_eq!(back, [1.0; 32]);
    drop((x, add_one, stream));
    cuda_core::trim_staging()?;
    session.assert_clean();
    Ok(())
}

#[test]
#[ignore = "needs NVRTC: CUDA_CORE_NVRTC=<library>"]
fn what_is_wrong_is_in_the_log() {
    match Program::new("__global__ void f() { oops }")
        .name("wrong.cu")
        .compile()
    {
        Err(error @ Error::Nvrtc { .. }) => {
            let text = error.to_string();
            assert!(text.contains("nvrtcCompileProgram"), "{text}");
            assert!(text.contains("wrong.cu(1)"), "{text}");
            assert!(text.contains("oops"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let refused = Program::new(ADD_ONE).option("--no-such-option").compile();
    assert!(matches!(refused, Err(Error::Nvrtc { .. })), "{refused:?}");
    let refused = nvrtc::compile("a\0b");
    assert!(matches!(refused, Err(Error::Nul { .. })), "{refused:?}");
}

#[test]
#[ignore = "needs NVRTC: CUDA_CORE_NVRTC=<library>"]
fn options_headers_and_names() -> Result<()> {
    let version = nvrtc::version()?;
    assert!(version >= Version::new(11, 2), "{version}");
    let known = nvrtc::supported_architectures()?;
    assert!(known.contains(&90) && known.is_sorted(), "{known:?}");
    let ptx = Program::new(
        "#include \"scale.h\"\ntemplate <class T> __global__ void scale(T *x) { *x *= FACTOR * K; }",
    )
    .header("scale.h", "#define FACTOR 2\n")
    .define("K", 3)
    .option("--std=c++17")
    .include_path(std::env::temp_dir())
    .capability(90)
    .name_expression("scale<float>")
    .name_expression("scale<int>")
    .compile()?;
    let lowered = ptx.lowered_name("scale<float>").expect("it was asked for");
    assert!(ptx.as_str().contains(lowered), "{lowered}");
    assert_ne!(ptx.lowered_name("scale<int>"), Some(lowered));
    assert_eq!(ptx.lowered_name("scale<double>"), None);
    assert!(ptx.as_str().contains(".target sm_90"), "{}", ptx.as_str());
    // Newer than any: the newest that there is.
    let newest = Program::new(ADD_ONE).capability(9999).compile()?;
    let target = format!(".target sm_{}", known[known.len() - 1]);
    assert!(newest.as_str().contains(&target), "{}", newest.as_str());
    let cubin = Program::new(ADD_ONE).capability(90).compile_cubin()?;
    assert!(cubin.as_bytes().starts_with(b"\x7fELF"));
    let exact = Program::new(ADD_ONE)
        .capability(52)
        .architecture("90a")
        .compile()?;
    assert!(
        exact.as_str().contains(".target sm_90a"),
        "{}",
        exact.as_str()
    );
    let unknown = Program::new(ADD_ONE).architecture("none").compile();
    assert!(matches!(unknown, Err(Error::Nvrtc { .. })), "{unknown:?}");
    // PTX has no binary, and is what comes of no architecture.
    let empty = Program::new(ADD_ONE).compile_cubin();
    assert!(
        matches!(
            empty,
            Err(Error::Nvrtc {
                op: "nvrtcGetCUBIN",
                ..
            })
        ),
        "{empty:?}"
    );
    // A warning is in the log of a success.
    let warned = nvrtc::compile("__global__ void f() { int unused = 1; }")?;
    assert!(warned.log().contains("unused"), "{}", warned.log());
    Ok(())
}
