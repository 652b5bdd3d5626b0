//! Elements beyond the primitive numbers: in buffers, as arguments of kernels, and declared by `pod!`.

use std::sync::Mutex;

use cuda_core::{Complex32, Complex64, Device, Module, Pod, Result, Stream, bf16, f16, pod};
use cuda_sim::register_kernel;
use support::simulator;

pod! {
    /// 16 bytes.
    #[derive(Debug, PartialEq)]
    pub(crate) struct Particle {
        position: [f32; 3],
        mass: f32,
    }

    /// As large as its alignment.
    #[derive(Debug, PartialEq)]
    #[repr(align(16))]
    struct Aligned {
        z: Complex32,
        /// Fills what would be padding.
        rest: [u16; 4],
    }

    /// Without gaps, since it is packed.
    #[derive(Debug, PartialEq)]
    #[repr(packed)]
    struct Packed {
        tag: u8,
        value: u32,
    }

    #[derive(Debug, PartialEq)]
    struct Empty {}
}

const PARTICLE: Particle = Particle { position: [1.0, 2.0, 3.0], mass: 4.0 };

#[test]
fn elements_survive_a_round_trip() -> Result<()> {
    fn survive<T: Pod + PartialEq + std::fmt::Debug>(stream: &Stream, value: T) -> Result<()> {
        let buffer = stream.upload_new(&[value; 5])?;
        assert_eq!(stream.download_vec(&buffer)?, [value; 5]);
        Ok(())
    }
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    survive(&stream, f16::from_f32(0.5))?;
    survive(&stream, bf16::from_f32(-3.0))?;
    survive(&stream, Complex32::new(1.0, -1.0))?;
    survive(&stream, [Complex64::new(1.0, -1.0); 2])?;
    survive(&stream, PARTICLE)?;
    survive(&stream, Aligned { z: 2.0.into(), rest: [7; 4] })?;
    survive(&stream, Packed { tag: 1, value: 2 })?;
    survive(&stream, Empty {})?;
    drop(stream);
    cuda_core::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn elements_are_laid_out_as_cuda_has_them() {
    let layout = |of: [usize; 2], size, align| assert_eq!(of, [size, align]);
    layout([size_of::<f16>(), align_of::<f16>()], 2, 2);
    layout([size_of::<bf16>(), align_of::<bf16>()], 2, 2);
    layout([size_of::<Complex32>(), align_of::<Complex32>()], 8, 8);
    layout([size_of::<Complex64>(), align_of::<Complex64>()], 16, 16);
    layout([size_of::<Particle>(), align_of::<Particle>()], 16, 4);
    layout([size_of::<Packed>(), align_of::<Packed>()], 5, 1);
}

#[test]
fn elements_are_arguments() -> Result<()> {
    const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry take_numbers(.param .b16 h, .param .b16 b, .param .align 8 .b8 c[8],\n\
        .param .align 16 .b8 z[16], .param .align 4 .b8 p[16]) { ret; }\n";
    static SEEN: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let session = simulator();
    register_kernel(
        "take_numbers",
        |_| Vec::new(),
        |arguments, _| {
            let bytes = (0..5).map(|index| arguments.bytes(index).to_vec()).collect();
            *SEEN.lock().expect("no panic") = bytes;
            Ok(())
        },
    );
    let stream = Device::get(0)?.create_stream()?;
    let function = Module::from_ptx(stream.context(), PTX)?.function("take_numbers")?;
    let mut launch = stream
        .kernel(&function)
        .block(1)
        .arg(f16::ONE)
        .arg(bf16::ONE)
        .arg(Complex32::new(1.0, 2.0))
        .arg(Complex64::new(3.0, 4.0))
        .arg(PARTICLE);
    // SAFETY: the kernel has five parameters of these sizes.
    unsafe { launch.launch() }?;
    stream.synchronize()?;
    let floats = |of: &[f32]| of.iter().flat_map(|it| it.to_ne_bytes()).collect::<Vec<_>>();
    let doubles = [3.0f64, 4.0].map(f64::to_ne_bytes).concat();
    let expected = [
        0x3c00u16.to_ne_bytes().to_vec(),
        0x3f80u16.to_ne_bytes().to_vec(),
        floats(&[1.0, 2.0]),
        doubles,
        floats(&[1.0, 2.0, 3.0, 4.0]),
    ];
    assert_eq!(*SEEN.lock().expect("no panic"), expected);
    drop((function, stream));
    session.assert_clean();
    Ok(())
}
