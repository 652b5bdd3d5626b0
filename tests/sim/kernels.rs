//! Kernels with typed parameters, and arguments of a program's own types.

use cuda_core::tensor_map::{TensorMap, TensorTiles};
use cuda_core::{
    Argument, Condition, Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, Graph,
    LaunchError, Module, PinnedBuffer, Registered, Result, Stream, kernel, pinned::RegisterFlags,
    pod,
};
use cuda_sim::{Arguments, Region, Session, register_kernel};
use support::{kernels, simulator};

kernel! {
    /// `y[i] += a * x[i]`
    pub(crate) fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
    fn nothing();
    /// Names that the macro uses, too.
    fn renamed(launch: &mut [u32], stream: u32) = "add_one";
    fn in_place(x: Option<&mut [u32]>, n: u32) = "add_one";
    fn beside(a: f32, x: u64, y: &mut [f32], n: u32) = "saxpy";
    fn saxpy_of_some(a: f32, x: Option<&[f32]>, y: &mut [f32], n: u32) = "saxpy";
    fn too_few(x: &mut [u32]) = "add_one";
    fn too_wide(x: &mut [u32], n: u64) = "add_one";
    fn echo(
        to: &mut [u64],
        byte: u8,
        short: cuda_core::f16,
        word: u32,
        long: u64,
        float: f32,
        double: f64,
        three: [f32; 3],
    );
    fn not_there(x: &[u8]);
    fn count_down(x: &mut [u32], go_on: &Condition);
}

/// Runs a test with a stream of device 0 and the module of the suites' kernels.
fn run(test: impl FnOnce(&Stream, &Module) -> Result<()>) -> Result<()> {
    let session: Session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let module = kernels::load(stream.context())?;
    test(&stream, &module)?;
    drop((stream, module));
    cuda_core::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn m_typed_kernels_launch() -> Result<()> {
    run(|stream, module| {
        let saxpy = saxpy::load(module)?;
        assert_eq!(saxpy.function().name(), "saxpy");
        let x = stream.upload_new(&[1.0f32; 100])?;
        let mut y = stream.alloc_zeroed::<f32>(100)?;
        // SAFETY: both have 100 elements.
        unsafe { saxpy.on(stream, 2.0, &x, &mut y, 100).elements(100).launch() }?;
        // Views, and pinned memory in place.
        let pinned = PinnedBuffer::from_slice(stream.context(), &[3.0f32; 10])?;
        let mut part = y.slice_mut(..10)?;
        // SAFETY: both have 10 elements.
        unsafe { saxpy.on(stream, 1.0, &pinned, &mut part, 10).elements(10).launch() }?;
        let (threes, flags) = (vec![3.0f32; 10], RegisterFlags::MAPPED);
        let registered = Registered::new(stream.context(), threes, flags)?;
        let mut sums = Registered::new(stream.context(), vec![1.0f32; 10], flags)?;
        // SAFETY: both have 10 elements.
        unsafe { saxpy.on(stream, 2.0, &registered, &mut sums, 10).elements(10).launch() }?;
        assert_eq!(sums.into_inner()?, [7.0; 10]);
        let half = x.slice(50..)?;
        // SAFETY: both have 50 elements.
        unsafe { saxpy.on(stream, 4.0, half, y.slice_mut(50..)?, 50).elements(50).launch() }?;
        // An exclusive borrow can also be read through a reference.
        let mut ones = stream.upload_new(&[1.0f32; 50])?;
        let ones = ones.as_view_mut();
        // SAFETY: both have 50 elements.
        unsafe { saxpy.on(stream, 1.0, &ones, y.slice_mut(50..)?, 50).elements(50).launch() }?;
        let function = saxpy.function();
        let launch = stream.kernel(function).elements(50).arg(-1.0f32).arg(&ones);
        // SAFETY: both have 50 elements.
        unsafe { launch.arg(y.slice_mut(50..)?).arg(50u32).launch() }?;
        // The same buffer twice, once by its address; and pointers that may be null.
        let (of_some, beside) = (saxpy_of_some::load(module)?, beside::load(module)?);
        let mut z = stream.upload_new(&[1.0f32; 50])?;
        let address = z.as_raw();
        // SAFETY: 50 elements, of which each thread uses its own.
        unsafe { beside.on(stream, 2.0, address, &mut z, 50).elements(50).launch() }?;
        let some = Some(ones.as_view());
        // SAFETY: both have 50 elements.
        unsafe { of_some.on(stream, 4.0, some, &mut z, 50).elements(50).launch() }?;
        assert_eq!(stream.download_vec(&z)?, [7.0; 50]);
        let ones = stream.upload_new(&[1.0f32; 50])?;
        let launch = stream.kernel(function).elements(50).arg(1.0f32).arg(Some(&ones));
        // SAFETY: both have 50 elements.
        unsafe { launch.arg(Some(&mut z)).arg(50u32).launch() }?;
        assert_eq!(stream.download_vec(&z)?, [8.0; 50]);
        // Pitched rows: the kernel uses the first.
        let mut rows = stream.context().alloc_pitched::<f32>(50, 2)?;
        stream.copy(&z, rows.row_mut(0)?)?;
        // SAFETY: both have 50 elements.
        unsafe { saxpy.on(stream, 1.0, &ones, &mut rows, 50).elements(50).launch() }?;
        // SAFETY: both have 50 elements.
        unsafe { saxpy.on(stream, 1.0, &rows, &mut z, 50).elements(50).launch() }?;
        assert_eq!(stream.download_vec(&z)?, [17.0; 50]);
        let in_place = in_place::load(module)?;
        // SAFETY: without elements the kernel accesses no memory.
        unsafe { in_place.on(stream, None, 0).block(1).launch() }?;
        let expected: Vec<f32> =
            [vec![5.0; 10], vec![2.0; 40], vec![6.0; 50]].into_iter().flatten().collect();
        assert_eq!(stream.download_vec(&y)?, expected);
        // SAFETY: no parameter.
        unsafe { nothing::load(module)?.on(stream).block(1).launch() }?;
        let mut words = stream.alloc_zeroed::<u32>(7)?;
        let renamed = renamed::from_function(module.function("add_one")?)?.clone();
        // SAFETY: the buffer has seven elements.
        unsafe { renamed.on(stream, &mut words, 7).block(7).launch() }?;
        assert_eq!(stream.download_vec(&words)?, [1; 7]);
        let mut back = stream.alloc_zeroed::<u64>(8)?;
        let half = cuda_core::f16::ONE;
        let echo = echo::load(module)?;
        let mut launch =
            echo.on(stream, &mut back, 1, half, 2, 3, 1.0, 2.0, [1.0, 2.0, 3.0]).block(1);
        // SAFETY: the kernel writes 60 bytes.
        unsafe { launch.launch() }?;
        let words = stream.download_vec(back.as_view())?;
        assert_eq!(words[..5], [1, 0x3c00, 2, 3, u64::from(1.0f32.to_bits())]);
        Ok(())
    })
}

/// Typed launches are ordered with what depends on the condition, like untyped ones.
#[test]
fn m_typed_kernels_set_conditions() -> Result<()> {
    run(|stream, _| {
        let context = stream.context();
        let count_down = count_down::load(&kernels::conditions(context)?)?;
        let mut left = stream.upload_new(&[5u32])?;
        let graph = Graph::capture(context, |stream| {
            let go_on = Condition::new(stream, 1)?;
            go_on.while_loop(stream, |body| {
                // SAFETY: the buffer has one element.
                unsafe { count_down.on(body, &mut left, &go_on).block(1).launch() }
            })
        })?;
        graph.instantiate()?.launch(stream)?;
        assert_eq!(stream.download_vec(&left)?, [0]);
        Ok(())
    })
}

#[test]
fn m_typed_kernels_are_compared_with_compiled_ones() -> Result<()> {
    run(|_, module| {
        match too_few::load(module).expect_err("two parameters") {
            Error::Launch(why) => assert!(
                matches!(&*why, LaunchError::ArgumentCount { kernel, expected: 2, given: 1, .. } if kernel == "add_one"),
                "{why:?}"
            ),
            other => panic!("{other:?}"),
        }
        match too_wide::load(module).expect_err("four bytes") {
            Error::Launch(why) => assert!(
                matches!(
                    *why,
                    LaunchError::ArgumentSize {
                        index: 1,
                        name: Some("n"),
                        expected: 4,
                        given: 8,
                        ..
                    }
                ),
                "{why:?}"
            ),
            other => panic!("{other:?}"),
        }
        let text = too_wide::load(module).expect_err("four bytes").to_string();
        assert_eq!(text, "load: parameter 1 (`n`) of `add_one` has 4 bytes, the declared type 8");
        let missing = not_there::load(module).expect_err("no such kernel");
        assert!(missing.to_string().contains("`not_there`"), "{missing}");
        Ok(())
    })
}

/// A type of the program itself, without a line of `unsafe`.
struct Tensor {
    elements: DeviceBuffer<f32>,
    rows: usize,
}

impl<'a> Argument<'a> for &'a Tensor {
    type As = DeviceSlice<'a, f32>;

    fn into_argument(self) -> Self::As {
        self.elements.as_view()
    }
}

impl<'a> Argument<'a> for &'a mut Tensor {
    type As = DeviceSliceMut<'a, f32>;

    fn into_argument(self) -> Self::As {
        self.elements.as_view_mut()
    }
}

/// A number type of the program itself.
struct Scale(f32);

impl Argument<'_> for Scale {
    type As = f32;

    fn into_argument(self) -> f32 {
        self.0
    }
}

/// Such types are ordered and freed like the arguments that they are passed as.
#[test]
fn m_a_programs_own_types_are_arguments() -> Result<()> {
    run(|stream, module| {
        let other = stream.context().create_stream()?;
        let tensor = |stream: &Stream, value: f32| -> Result<Tensor> {
            Ok(Tensor { elements: stream.upload_new(&[value; 64])?, rows: 8 })
        };
        let (x, mut y) = (tensor(stream, 2.0)?, tensor(stream, 1.0)?);
        let n = (x.rows * 8) as u32;
        let typed = saxpy::load(module)?;
        // SAFETY: both have 64 elements.
        unsafe { typed.on(&other, 3.0, &x, &mut y, n).elements(64).launch() }?;
        let function = module.function("saxpy")?;
        let mut launch = stream
            .kernel(&function)
            .elements(64)
            .arg(Scale(10.0))
            .arg(&x)
            .arg(&mut y)
            .arg(n)
            .uses(&x);
        // SAFETY: both have 64 elements.
        unsafe { launch.launch() }?;
        drop(x);
        assert_eq!(other.download_vec(&y.elements)?, [27.0; 64]);
        Ok(())
    })
}

pod! {
    struct Light { direction: [f32; 3], strength: f32 }
}

// SAFETY: `pod!` proves that any bytes are a value, and that it has no padding.
unsafe impl cuda_sim::Element for Light {}

const SHADE: &str = "
    .version 7.0
    .target sm_70
    .visible .entry shade(
        .param .align 4 .b8 light[16], .param .u8 on, .param .u64 others, .param .u64 to, .param .u32 n
    ) { trap; }";

kernel! {
    fn shade(light: Light, on: bool, others: &[Light], to: &mut [[f32; 2]], n: u32);
}

const MOVE_ALL: &str = "
    .version 8.0
    .target sm_90
    .visible .entry move_all(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128]) { trap; }";

kernel! {
    fn move_all(from: TensorMap, to: TensorMap);
}

/// A launch is ordered with other uses of the memory that its maps describe, and keeps that memory alive.
#[test]
fn m_tensor_maps_are_ordered_by_their_memory() -> Result<()> {
    const WORDS: usize = 16 * 16;
    // A simulated map begins with the address.
    let address = |launch: &Arguments, index| launch.value::<[u64; 16]>(index)[0];
    register_kernel(
        "move_all",
        move |launch| {
            let bytes = 4 * WORDS;
            vec![Region::read(address(launch, 0), bytes), Region::write(address(launch, 1), bytes)]
        },
        move |launch, memory| {
            let from = memory.slice::<u32>(address(launch, 0))?;
            memory.slice_mut(address(launch, 1), |to: &mut [u32]| to.copy_from_slice(&from))
        },
    );
    run(|stream, _| {
        let kernel = move_all::load(&Module::from_ptx(stream.context(), MOVE_ALL)?)?;
        let others = [stream.context().create_stream()?, stream.context().create_stream()?];
        let tiles = TensorTiles::new([16, 16], [16, 16]);
        let mut from = stream.alloc_zeroed::<u32>(WORDS)?;
        let mut to = stream.alloc_zeroed::<u32>(WORDS)?;
        for value in 1..=2 {
            others[0].fill(&mut from, value)?;
            let source = TensorMap::reading(&from, &tiles)?;
            let mut target = TensorMap::writing(&mut to, &tiles)?;
            for by_value in [false, true] {
                let (source, target) = (source.clone(), &mut target);
                let launch = match by_value {
                    false => kernel.on(stream, &source, &mut *target),
                    true => kernel.on(stream, source.clone(), target),
                };
                // SAFETY: the kernel copies through its maps, which have as many words.
                unsafe { launch.block(1).launch() }?;
            }
            assert_eq!(others[1].download_vec(&to)?, [value; WORDS]);
        }
        // The memory is freed after the launch.
        let source = TensorMap::reading(&from, &tiles)?;
        let target = TensorMap::writing(&mut to, &tiles)?;
        // SAFETY: as above.
        unsafe { kernel.on(stream, source, target).block(1).launch() }?;
        drop((from, to));
        others[0].alloc_zeroed::<u32>(WORDS).map(drop)
    })
}

/// A program defines its kernels' effects, with structs among their parameters.
#[test]
fn m_declared_kernels_have_structs() -> Result<()> {
    cuda_sim::kernels! {
        fn shade(light: Light, on: bool, others: &[Light; n], to: &mut [[f32; 2]; n], n: u32) {
            if on {
                let pairs = others.iter().map(|other| [light.strength, other.direction[1]]);
                to.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair);
            }
        }
    }
    run(|stream, _| {
        let shade = shade::load(&Module::from_ptx(stream.context(), SHADE)?)?;
        let light = |strength| Light { direction: [0.0, 2.0 * strength, 0.0], strength };
        let others = stream.upload_new(&[light(1.0), light(2.0)])?;
        let mut to = stream.alloc_zeroed::<[f32; 2]>(2)?;
        for (on, expected) in [(false, [[0.0; 2]; 2]), (true, [[7.0, 2.0], [7.0, 4.0]])] {
            // SAFETY: both have two elements.
            unsafe { shade.on(stream, light(7.0), on, &others, &mut to, 2).block(1).launch() }?;
            assert_eq!(stream.download_vec(&to)?, expected);
        }
        Ok(())
    })
}
