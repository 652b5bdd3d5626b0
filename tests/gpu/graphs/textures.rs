//! Textures and surfaces in graphs.

use cuda_core::{
    Context, DeviceBuffer, Graph, Module, Result, Stream,
    image::{ArrayFlags, ArrayShape, CudaArray, Surface, Texture, TextureDescriptor},
};
use cuda_sim::register_kernel;
use support::{gpu_test, one_stream, refusal, stall, two_streams};

const SHAPE: ArrayShape = ArrayShape::D2 { width: 16, height: 8 };
const WIDTH: u32 = 16;
const TEXELS: usize = 16 * 8;

/// Loads the kernels `sample`, without scales here, `fetch` and `redraw`.
fn kernels(context: &Context) -> Result<Module> {
    for name in ["sample", "fetch"] {
        register_kernel(
            name,
            |launch| vec![launch.samples(0), launch.writes::<f32>(1, TEXELS)],
            |launch, memory| {
                let texels = memory.slice::<f32>(launch.address(0))?;
                memory.slice_mut(launch.address(1), |to| to.copy_from_slice(&texels))
            },
        );
    }
    register_kernel(
        "redraw",
        |launch| vec![launch.draws(0)],
        |launch, memory| {
            memory.slice_mut(launch.address(0), |texels: &mut [f32]| {
                texels.iter_mut().for_each(|texel| *texel = 2.0 * *texel + 1.0);
            })
        },
    );
    Module::from_ptx(context, include_str!("../sampling.ptx"))
}

/// Prepares a launch of `sample(texture, f32 *to, u32 width, f32 sx, f32 sy, u32 n)`.
macro_rules! sample {
    ($stream:expr, $function:expr, $texture:expr, $array:expr, $to:expr) => {
        $stream
            .kernel($function)
            .elements(TEXELS)
            .arg($texture.bind($array)?)
            .arg($to)
            .arg(WIDTH)
            .arg(1.0f32)
            .arg(1.0f32)
            .arg(TEXELS as u32)
    };
}

type Image = (CudaArray<f32>, Texture<f32>);

/// Creates an array of texels of that value, and a texture of it.
fn texture(stream: &Stream, value: f32) -> Result<Image> {
    let mut array = CudaArray::new(stream.context(), SHAPE, ArrayFlags::SURFACE_LOAD_STORE)?;
    stream.upload_to_array(&[value; TEXELS], &mut array)?;
    let texture = Texture::new(&array, &TextureDescriptor::default())?;
    Ok((array, texture))
}

/// Creates images at once, which may take the place of what was freed.
fn poison(stream: &Stream) -> Result<Vec<(Image, DeviceBuffer<f32>)>> {
    let one = || {
        let mut buffer = stream.alloc(TEXELS)?;
        stream.fill(&mut buffer, -1.0)?;
        Ok((texture(stream, -1.0)?, buffer))
    };
    (0..8).map(|_| one()).collect()
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_texture_is_sampled_at_each_launch() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let sample = kernels(&context)?.function("sample")?;
        let (mut array, texture) = texture(&stream, 1.0)?;
        let mut to = stream.alloc_zeroed::<f32>(TEXELS)?;
        let mut next = stream.alloc::<f32>(TEXELS)?;
        let graph = Graph::capture(&context, |stream| {
            // SAFETY: the parameters of `sample`; as many elements as it writes.
            unsafe { sample!(stream, &sample, texture, &array, &mut to).launch() }
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [1.0; TEXELS]);
        // The launch is ordered after another stream's earlier work on the array, and before its later work.
        stream.fill(&mut next, 2.0)?;
        let stalled = stall(other.as_raw());
        other.copy_to_array(&next, &mut array)?;
        exec.launch(&stream)?;
        stalled.release();
        assert_eq!(stream.download_vec(&to)?, [2.0; TEXELS]);
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        other.fill(&mut next, 3.0)?;
        other.copy_to_array(&next, &mut array)?;
        stalled.release();
        assert_eq!(stream.download_vec(&to)?, [2.0; TEXELS]);
        // The graph keeps the texture and the array alive.
        let rejected = texture.close().expect_err("the graph uses it");
        assert!(rejected.error.to_string().contains("a graph uses the object"));
        drop((rejected, array, graph));
        let taken = poison(&stream)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [3.0; TEXELS]);
        drop((exec, taken));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_surface_is_drawn_on_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let redraw = kernels(&context)?.function("redraw")?;
        let (mut array, texture) = texture(&stream, 1.0)?;
        let surface = Surface::new(&array)?;
        let mut to = stream.alloc_zeroed::<f32>(TEXELS)?;
        let graph = Graph::build(&context, |builder| {
            builder.add(|stream| {
                let launch = stream.kernel(&redraw).elements(TEXELS);
                let launch = launch.arg(surface.bind_mut(&mut array)?).arg(WIDTH);
                // SAFETY: the parameters of `redraw`; the array has as many texels.
                unsafe { launch.arg(TEXELS as u32).launch() }
            })?;
            builder.add(|stream| stream.copy_from_array(&array, &mut to))?; // after the kernel
            Ok(())
        })?;
        assert_eq!(graph.edges()?, [(0, 1)]);
        let twice = Graph::capture(&context, |stream| {
            graph.include(stream)?;
            graph.include(stream)
        })?;
        let (mut exec, mut exec_twice) = (graph.instantiate()?, twice.instantiate()?);
        drop((graph, twice, redraw));
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [3.0; TEXELS]);
        stream.upload_to_array(&[5.0; TEXELS], &mut array)?;
        drop((array, texture, surface, exec));
        let taken = poison(&stream)?;
        exec_twice.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [23.0; TEXELS]);
        drop(taken);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_a_kernels_texture_is_replaced() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels(&context)?;
        let sample = module.function("sample")?;
        let (one, of_one) = texture(&stream, 1.0)?;
        let (two, of_two) = texture(&stream, 2.0)?;
        let mut to = stream.alloc_zeroed::<f32>(TEXELS)?;
        let graph = Graph::capture(&context, |stream| {
            // SAFETY: the parameters of `sample`; as many elements as it writes.
            unsafe { sample!(stream, &sample, of_one, &one, &mut to).launch() }
        })?;
        let (mut exec, node) = (graph.instantiate()?, graph.nodes()?[0].id());
        // SAFETY: as above.
        unsafe { exec.set_kernel(node, &mut sample!(stream, &sample, of_two, &two, &mut to)) }?;
        let rejected = of_two.close().expect_err("the executable uses it");
        drop((rejected, two));
        let taken = poison(&stream)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [2.0; TEXELS]);
        // The executable also lets go of the second texture. The graph still keeps the first.
        // SAFETY: as above.
        unsafe { exec.set_kernel(node, &mut sample!(stream, &sample, of_one, &one, &mut to)) }?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [1.0; TEXELS]);
        // The same with a texture of linear memory.
        let mut row = stream.alloc::<f32>(TEXELS)?;
        stream.fill(&mut row, 4.0)?;
        let of_row = Texture::new(&row, &TextureDescriptor::default())?;
        let fetch = module.function("fetch")?;
        let graph = Graph::capture(&context, |stream| {
            let launch = stream.kernel(&fetch).elements(TEXELS).arg(of_row.bind(&row)?);
            // SAFETY: the parameters of `fetch`; as many elements as it writes.
            unsafe { launch.arg(&mut to).arg(TEXELS as u32).launch() }
        })?;
        let mut exec = graph.instantiate()?;
        assert!(refusal(row.close().map_err(|rejected| rejected.error)).contains("a graph uses"));
        drop((of_row, graph));
        let more = poison(&stream)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&to)?, [4.0; TEXELS]);
        drop((taken, more));
        Ok(())
    }
}
