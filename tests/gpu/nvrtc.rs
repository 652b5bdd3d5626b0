//! NVRTC. Compiling needs neither a device nor a driver. The simulated driver reads the names and parameters
//! of kernels from the PTX.

use cuda_core::nvrtc::{Program, compile, supported_architectures, version};
use cuda_core::{Device, Error, Function, Module, Result, Stream, Version};
use support::{gpu_test, kernels, refusal};

/// The kernel of [`support::kernels`], which registers its effect with the simulated driver.
const ADD_ONE: &str = r#"extern "C" __global__ void add_one(unsigned *x, unsigned n) {
    if (threadIdx.x < n) x[threadIdx.x] += 1;
}"#;

/// Asserts that the kernel adds one.
#[track_caller]
fn adds_one(stream: &Stream, add_one: &Function) -> Result<()> {
    kernels::register();
    let mut x = stream.alloc_zeroed::<u32>(32)?;
    // SAFETY: x has 32 elements.
    unsafe { stream.kernel(add_one).block(64).arg(&mut x).arg(32_u32).launch() }?;
    assert_eq!(stream.download_vec(&x)?, [1; 32]);
    Ok(())
}

gpu_test! {
    needs 1, nvrtc;
    fn m_nvrtc_compile_a_string_and_launch_it() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let ptx = compile(ADD_ONE)?;
        adds_one(&stream, &Module::from_ptx(&device.context()?, &ptx)?.function("add_one")?)
    }
}

gpu_test! {
    needs 1, real, nvrtc;
    fn m_nvrtc_binaries() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let cubin = Program::new(ADD_ONE).device(device)?.compile_cubin()?;
        assert!(cubin.as_bytes().starts_with(b"\x7fELF"));
        adds_one(&stream, &Module::from_cubin(&device.context()?, &cubin)?.function("add_one")?)?;
        Ok(())
    }
}

gpu_test! {
    needs 1, nvrtc;
    fn m_nvrtc_what_is_wrong_is_in_the_log() -> Result<()> {
        let wrong = Program::new("__global__ void f() { oops }").name("wrong.cu").compile();
        match wrong {
            Err(error @ Error::Nvrtc(_)) => {
                let text = error.to_string();
                for part in ["nvrtcCompileProgram", "wrong.cu(1)", "oops"] {
                    assert!(text.contains(part), "no {part} in: {text}");
                }
            }
            other => panic!("{other:?}"),
        }
        let refused = Program::new(ADD_ONE).option("--no-such-option").compile();
        assert!(matches!(refused, Err(Error::Nvrtc(_))), "{refused:?}");
        // PTX is not a cubin; without an architecture the result is PTX.
        let none = Program::new("__global__ void f() { int unused = 1; }").compile_cubin();
        match none {
            Err(Error::Nvrtc(it)) if it.op == "nvrtcGetCUBIN" => assert!(it.log.contains("unused"), "{}", it.log),
            other => panic!("{other:?}"),
        }
        let refused = compile("a\0b");
        assert!(refusal(refused).contains("NUL byte"));
        // Warnings are in the log of a successful compilation.
        let warned = compile("__global__ void f() { int unused = 1; }")?;
        assert!(warned.log().contains("unused"), "{}", warned.log());
        Ok(())
    }
}

// NVRTC would take the file's bytes for its own memory, and crash.
gpu_test! {
    needs 1, nvrtc;
    fn s13_options_without_unsafe() -> Result<()> {
        let header = std::env::temp_dir().join(format!("cuda-core-{}.pch", std::process::id()));
        let [create, take] = ["create", "use"].map(|what| format!("--{what}-pch={}", header.display()));
        let program = Program::new("#include \"a.h\"\n__global__ void f() {}").header("a.h", "struct A {};");
        for option in [&create, &take, "--pch", "--ptxas-options=", "--split-compile=2147483648", "2147483648"] {
            let refused = refusal(program.clone().option("--split-compile").option(option).compile());
            assert!(refused.contains(option), "{refused}");
        }
        assert!(!header.exists());
        // SAFETY: this NVRTC writes the file, and nothing changes it.
        let [created, taken] = [create, take].map(|option| unsafe { program.clone().option_unchecked(option) }.compile());
        if version()? >= Version::new(12, 8) {
            assert_eq!(created?.as_str(), taken?.as_str());
            std::fs::remove_file(header).expect("NVRTC has written it");
        } else {
            assert!(matches!((created, taken), (Err(Error::Nvrtc(_)), Err(Error::Nvrtc(_)))));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, nvrtc;
    fn m_nvrtc_options_headers_and_names() -> Result<()> {
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
        Ok(())
    }
}

#[cfg(target_os = "linux")]
gpu_test! {
    needs 1, nvrtc;
    fn m_nvrtc_finds_headers_in_a_folder_of_any_name() -> Result<()> {
        use std::os::unix::ffi::OsStringExt;
        let name = [format!("include-{}", std::process::id()).as_bytes(), b"\xff"].concat();
        let folder = std::env::temp_dir().join(std::ffi::OsString::from_vec(name));
        std::fs::create_dir(&folder).expect("there is no such folder");
        std::fs::write(folder.join("deep.h"), "#define DEEP deep_down\n").expect("it is new");
        let program = Program::new("#include \"deep.h\"\nextern \"C\" __global__ void DEEP() {}");
        let compiled = program.include_path(&folder).compile();
        std::fs::remove_dir_all(folder).expect("it was made above");
        assert!(compiled?.as_str().contains("deep_down"));
        Ok(())
    }
}

gpu_test! {
    needs 1, real, nvrtc;
    fn m_nvrtc_headers_of_the_toolkit() -> Result<()> {
        let source = "#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n\
                      extern \"C\" __global__ void twice(__half *x) { *x += *x; }";
        let stream = Device::get(0)?.create_stream()?;
        match Program::new(source).device(stream.device())?.toolkit_headers() {
            Ok(program) => {
                let twice = Module::from_ptx(stream.context(), program.compile()?)?.function("twice")?;
                let mut x = stream.upload_new(&[cuda_core::f16::from_f32(1.5)])?;
                // SAFETY: x has one element, for the one thread.
                unsafe { stream.kernel(&twice).block(1).arg(&mut x).launch() }?;
                assert_eq!(stream.download_vec(&x)?[0].to_f32(), 3.0);
            }
            none => assert!(refusal(none).contains("set CUDA_HOME"), "there is no toolkit"),
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, nvrtc;
    fn m_nvrtc_architectures() -> Result<()> {
        let version = version()?;
        assert!(version >= Version::new(11, 2), "{version}");
        let known = supported_architectures()?;
        assert!(known.contains(&90) && known.is_sorted(), "{known:?}");
        // For a capability newer than any that NVRTC knows, its newest is used.
        let newest = Program::new(ADD_ONE).capability(9999).compile()?;
        let target = format!(".target sm_{}", known[known.len() - 1]);
        assert!(newest.as_str().contains(&target), "{}", newest.as_str());
        // An architecture's name is passed on unchanged, whatever the capability.
        let exact = Program::new(ADD_ONE).capability(52).architecture("90a").compile()?;
        assert!(exact.as_str().contains(".target sm_90a"), "{}", exact.as_str());
        let unknown = Program::new(ADD_ONE).architecture("none").compile();
        assert!(matches!(unknown, Err(Error::Nvrtc(_))), "{unknown:?}");
        Ok(())
    }
}
