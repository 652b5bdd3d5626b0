//! Fat binaries with PTX and cubins for several devices, built here as nvcc writes them.

use std::path::Path;

use cuda_core::nvrtc::Program;
use cuda_core::{Context, Device, Error, Function, Module, ModuleError, Result};
use support::{gpu_test, kernels, report};

/// An image in a container.
enum Image<'a> {
    /// PTX of version 7.0 for devices of compute capability 7.0 and later.
    Ptx(&'a str),
    /// A binary for devices of this capability.
    Cubin(u32, &'a [u8]),
}

/// Sizes of the headers. The second includes the options, which only a PTX entry has, and which are empty.
const CONTAINER: u16 = 16;
const ENTRY: u32 = 64;
const OPTIONS: u32 = 16;

/// Builds the container of these images. The toolkit's `fatbinary_section.h` names its magic; nvcc writes it
/// as a header, and a further header for each image, all little-endian and in units of eight bytes.
fn container(images: &[Image<'_>]) -> Vec<u8> {
    let entries: Vec<u8> = images.iter().flat_map(entry).collect();
    let mut bytes = 0xBA55_ED50_u32.to_le_bytes().to_vec();
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(CONTAINER.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(entries);
    bytes
}

fn entry(image: &Image<'_>) -> Vec<u8> {
    const ADDRESSES_OF_64_BITS: u64 = 0x01;
    const HOST_IS_LINUX: u64 = 0x10;
    let (kind, version, capability, content) = match image {
        Image::Ptx(text) => (1_u16, (7_u16, 0_u16), 70, text.as_bytes()),
        // The version is the ELF file's own plus one; the ABI version is the minor version.
        Image::Cubin(capability, image) => (2, (1, u16::from(image[8])), *capability, *image),
    };
    let options = if kind == 1 { OPTIONS } else { 0 };
    // PTX text also ends in a NUL byte.
    let size = match kind {
        1 => (content.len() + 1).next_multiple_of(8),
        _ => content.len().next_multiple_of(8),
    };
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(0x0101_u16.to_le_bytes());
    bytes.extend((ENTRY + options).to_le_bytes());
    bytes.extend((size as u64).to_le_bytes());
    // Nothing is compressed. The options, if any, follow the header.
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(if options > 0 { ENTRY } else { 0 }.to_le_bytes());
    bytes.extend(version.1.to_le_bytes());
    bytes.extend(version.0.to_le_bytes());
    bytes.extend(capability.to_le_bytes());
    // The name is empty.
    bytes.extend([0; 8]);
    bytes.extend((ADDRESSES_OF_64_BITS | HOST_IS_LINUX).to_le_bytes());
    bytes.resize(ENTRY as usize, 0);
    if options > 0 {
        // The offset of the options' text, which is empty.
        bytes.extend(u64::from(ENTRY + 8).to_le_bytes());
        bytes.extend([0; 8]);
    }
    bytes.extend(content);
    bytes.resize((ENTRY + options) as usize + size, 0);
    bytes
}

/// Asserts that a function adds one to every element.
#[track_caller]
fn adds_one(context: &Context, add_one: &Function) -> Result<()> {
    let stream = context.create_stream()?;
    let mut x = stream.alloc_zeroed::<u32>(100)?;
    let mut launch = stream.kernel(add_one).elements(100).arg(&mut x).arg(100_u32);
    // SAFETY: the parameters of `add_one`; as many elements as the count passed to it.
    unsafe { launch.launch() }?;
    drop(launch);
    let mut back = [0; 100];
    stream.download(&x, &mut back)?;
    assert_eq!(back, [1; 100]);
    Ok(())
}

/// Keeps an image in a file while `load` runs.
fn in_a_file<R>(image: &[u8], load: impl FnOnce(&Path) -> R) -> R {
    let file = std::env::temp_dir().join(format!("kernels-{}.fatbin", std::process::id()));
    std::fs::write(&file, image).expect("a file");
    let loaded = load(&file);
    std::fs::remove_file(&file).expect("removed");
    loaded
}

/// Loads the container from memory and from a file, and runs the result.
#[track_caller]
fn loads(context: &Context, what: &str, images: &[Image<'_>]) -> Result<()> {
    let image = container(images);
    // SAFETY: the container is whole, with the sizes of the whole images in it.
    let from_memory = unsafe { Module::from_image(context, &image) };
    // SAFETY: as above.
    let from_file = in_a_file(&image, |file| unsafe { Module::from_file(context, file) });
    for (from, module) in [("memory", from_memory), ("a file", from_file)] {
        let module = module.unwrap_or_else(|error| panic!("{what} from {from}: {error}"));
        adds_one(context, &module.function("add_one")?)?;
    }
    Ok(())
}

/// Like `loads`, as a library.
#[track_caller]
fn loads_as_a_library(context: &Context, what: &str, images: &[Image<'_>]) -> Result<()> {
    use cuda_core::Library;

    let image = container(images);
    // SAFETY: the container is whole, with the sizes of the whole images in it.
    let from_memory = unsafe { Library::from_image(&image) };
    // SAFETY: as above.
    let from_file = in_a_file(&image, |file| unsafe { Library::from_file(file) });
    for (from, library) in [("memory", from_memory), ("a file", from_file)] {
        let library = library.unwrap_or_else(|error| panic!("{what} from {from}: {error}"));
        adds_one(context, &library.kernel("add_one")?.function(context)?)?;
    }
    Ok(())
}

const ADD_ONE: &str = r#"extern "C" __global__ void add_one(unsigned *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}"#;

/// Returns the compute capability of the context's device, and one whose binaries the device does not run.
fn capabilities(context: &Context) -> Result<(u32, u32)> {
    let (major, minor) = context.device().compute_capability()?;
    let own = (10 * major + minor).unsigned_abs();
    Ok((own, if major == 8 { 90 } else { 80 }))
}

gpu_test! {
    needs 1, real;
    fn m_fatbin_of_ptx() -> Result<()> {
        let context = Device::get(0)?.context()?;
        loads(&context, "a fatbin of PTX", &[Image::Ptx(kernels::PTX)])
    }
}

gpu_test! {
    needs 1, real, nvrtc;
    fn m_fatbin_of_a_cubin() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (capability, other) = capabilities(&context)?;
        let cubin = Program::new(ADD_ONE).capability(capability).compile_cubin()?;
        let cubin = || Image::Cubin(capability, cubin.as_bytes());
        loads(&context, "a fatbin of a cubin", &[cubin()])?;
        loads(&context, "a fatbin of both", &[cubin(), Image::Ptx(kernels::PTX)])?;
        // Images for other devices are ignored.
        let foreign = Program::new(ADD_ONE).capability(other).compile_cubin()?;
        let foreign = || Image::Cubin(other, foreign.as_bytes());
        let several = [foreign(), Image::Ptx(kernels::PTX), cubin()];
        loads(&context, "a fatbin of several", &several)?;
        // With only such images, the driver returns an error.
        let nothing = container(&[foreign()]);
        // SAFETY: the container is whole, with the size of the whole image in it.
        match unsafe { Module::from_image(&context, &nothing) } {
            Err(error @ Error::Module(_)) => {
                assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_NO_BINARY_FOR_GPU));
            }
            refused => panic!("a fatbin of a cubin for another device: {refused:?}"),
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0, real, nvrtc;
    fn m_fatbins_are_libraries() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (capability, _) = capabilities(&context)?;
        let cubin = Program::new(ADD_ONE).capability(capability).compile_cubin()?;
        let cubin = || Image::Cubin(capability, cubin.as_bytes());
        let ptx = || Image::Ptx(kernels::PTX);
        loads_as_a_library(&context, "a fatbin of PTX", &[ptx()])?;
        loads_as_a_library(&context, "a fatbin of a cubin", &[cubin()])?;
        loads_as_a_library(&context, "a fatbin of both", &[cubin(), ptx()])
    }
}

gpu_test! {
    needs 1, real, nvrtc;
    fn m11_truncated_images() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (capability, _) = capabilities(&context)?;
        let whole = Program::new(ADD_ONE).capability(capability).compile_cubin()?;
        // The driver reads as far as the headers say, so zeros replace the missing part.
        let mut half = whole.as_bytes().to_vec();
        let middle = half.len() / 2;
        half[middle..].fill(0);
        let fatbin = container(&[Image::Cubin(capability, &half)]);
        for (what, image) in [("half a cubin", &half), ("a fatbin of it", &fatbin)] {
            // SAFETY: everything that its headers refer to is within the image, zeros where it was cut.
            let loaded = unsafe { Module::from_image(&context, image) };
            match loaded.and_then(|module| module.function("add_one").map(drop)) {
                Err(Error::Module(error)) if !matches!(*error, ModuleError::File { .. }) => {
                    report!("{what}: {error}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        // The driver still works.
        adds_one(&context, &kernels::get(&context, "add_one")?)
    }
}
