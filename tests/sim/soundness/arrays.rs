//! Arrays, textures and surfaces that are freed, written or read while work is queued: S02, S07, S17, S26,
//! S37, S42.

use cuda_core::{
    Access, Extent, Function, Graph, Module, Origin, PinnedBuffer, Result, Stream, drops,
    image::{
        ArrayFlags, ArrayShape, CudaArray, MipmappedArray, Surface, Texture, TextureDescriptor,
    },
};
use cuda_sim::register_kernel;
use support::{refusal, stall};

use super::{clean, device, primary};

fn array(layers: usize) -> Result<CudaArray<u32>> {
    let shape = ArrayShape::Layered2D { width: 4, height: 4, layers };
    CudaArray::new(&primary(), shape, ArrayFlags::default())
}

#[test]
fn s02_destroying_waits() {
    clean(|session| {
        let mut array = array(1)?;
        let stream = device().create_stream()?;
        stream.upload_to_array(&[1; 16], &mut array)?;
        drop(stream);
        drop(array);
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

#[test]
fn s17_the_last_of_array_and_texture_destroys_it() {
    clean(|session| {
        let mut array = array(1)?;
        let stream = device().create_stream()?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        stream.upload_to_array(&[1; 16], &mut array)?;
        drop(array);
        assert_eq!(session.calls("cuArrayDestroy"), 0);
        drop(texture);
        assert_eq!(session.calls("cuArrayDestroy"), 1);
        assert_eq!(session.pending_ops(), 0, "the copy came before");
        Ok(())
    });
}

/// Two streams write two layers: neither waits for the other, and a reader of both waits for both.
#[test]
fn s37_layers_are_ordered_one_by_one() {
    clean(|session| {
        let mut array = array(2)?;
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let layer = Extent::new(4, 4, 1);
        let first = array.region_mut(Origin::ZERO, layer)?;
        one.upload_to_array(&[1; 16], first)?;
        let mark = session.mark();
        let second = array.region_mut((0, 0, 1), layer)?;
        two.upload_to_array(&[2; 16], second)?;
        assert!(!session.names_since(mark).contains(&"cuStreamWaitEvent"));
        let three = device().create_stream()?;
        let mut both = PinnedBuffer::<u32>::zeroed(&primary(), 32)?;
        three.copy_from_array(&array, &mut both)?;
        assert_eq!(both.as_slice()?, [[1; 16], [2; 16]].concat());
        Ok(())
    });
}

/// Loads a kernel that takes one handle, and reads all its texels.
fn kernel() -> Result<Function> {
    const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry look(.param .u64 image)
{
    ret;
}
";
    register_kernel("look", |launch| vec![launch.samples(0)], |_, _| Ok(()));
    Module::from_ptx(&primary(), PTX)?.function("look")
}

fn streams() -> Result<(Stream, Stream)> {
    Ok((device().create_stream()?, device().create_stream()?))
}

#[test]
fn s42_textures_are_destroyed_behind_their_kernels() {
    clean(|session| {
        let (kernel, array) = (kernel()?, array(1)?);
        let (stream, _) = streams()?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let mut launch = stream.kernel(&kernel).block(1).arg(texture.bind(&array)?);
        // SAFETY: the kernel only reads.
        unsafe { launch.launch() }?;
        drop(launch);
        assert_eq!(session.pending_ops(), 1);
        drop(texture);
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

#[test]
fn s07_a_graph_keeps_textures_and_their_arrays() {
    clean(|session| {
        let (kernel, mut array) = (kernel()?, array(1)?);
        let (stream, other) = streams()?;
        let source = stream.alloc_zeroed::<u32>(16)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let graph = Graph::capture(&primary(), |stream| {
            stream.copy_to_array(&source, &mut array)?;
            // SAFETY: the kernel only reads.
            unsafe { stream.kernel(&kernel).block(1).arg(texture.bind(&array)?).launch() }
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        let mark = session.mark();
        other.copy_to_array(&source, &mut array)?;
        assert!(session.names_since(mark).contains(&"cuStreamWaitEvent"));
        let mark = session.mark();
        let destroyed = || {
            let destroy = ["cuTexObjectDestroy", "cuArrayDestroy"];
            let names = session.since(mark).into_iter().map(|call| call.name);
            names.filter(|name| destroy.contains(name)).collect::<Vec<_>>()
        };
        drop((texture, array, graph));
        exec.launch(&stream)?;
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec); // the launch, and what destroys the texture after it, are pending
        assert!(destroyed().is_empty());
        stalled.release();
        drops::flush();
        assert_eq!(destroyed(), ["cuTexObjectDestroy", "cuArrayDestroy"]);
        Ok(())
    });
}

#[test]
fn l_a_texture_is_closed_once_no_graph_uses_it() {
    clean(|session| {
        let (kernel, array) = (kernel()?, array(1)?);
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let graph = Graph::capture(&primary(), |stream| {
            // SAFETY: the kernel only reads.
            unsafe { stream.kernel(&kernel).block(1).arg(texture.bind(&array)?).launch() }
        })?;
        let rejected = texture.close().expect_err("the graph uses it");
        assert!(refusal::<()>(Err(rejected.error)).contains("a graph uses the object"));
        drop(graph);
        assert_eq!(session.calls("cuTexObjectDestroy"), 0);
        rejected.value.close()?;
        assert_eq!(session.calls("cuTexObjectDestroy"), 1);
        Ok(())
    });
}

#[test]
fn s26_a_writer_of_an_array_waits_for_kernels_that_sample_it() {
    clean(|session| {
        let (kernel, mut array) = (kernel()?, array(1)?);
        let (one, two) = streams()?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let mut launch = one.kernel(&kernel).block(1).arg(texture.bind(&array)?);
        // SAFETY: the kernel only reads.
        unsafe { launch.launch() }?;
        drop(launch);
        let mark = session.mark();
        let mut back = [0; 16];
        two.download_from_array(&array, &mut back)?;
        assert!(!session.names_since(mark).contains(&"cuStreamWaitEvent"), "both read");
        let mark = session.mark();
        two.upload_to_array(&[1; 16], &mut array)?;
        assert!(session.names_since(mark).contains(&"cuStreamWaitEvent"));
        Ok(())
    });
}

#[test]
fn s26_a_reader_of_an_array_waits_for_kernels_that_draw_on_it() {
    clean(|session| {
        let kernel = kernel()?;
        let shape = ArrayShape::D1 { width: 16 };
        let flags = ArrayFlags::SURFACE_LOAD_STORE;
        let mut array = CudaArray::<u32>::new(&primary(), shape, flags)?;
        let (one, two) = streams()?;
        let surface = Surface::new(&array)?;
        let mut launch = one.kernel(&kernel).block(1).arg(surface.bind(&array)?);
        // SAFETY: the kernel only reads.
        unsafe { launch.launch() }?;
        drop(launch);
        let mut target = PinnedBuffer::<u32>::zeroed(&primary(), 16)?;
        let mark = session.mark();
        two.copy_from_array(&array, &mut target)?;
        assert!(!session.names_since(mark).contains(&"cuStreamWaitEvent"), "both read");
        let mut launch = one.kernel(&kernel).block(1).arg(surface.bind_mut(&mut array)?);
        // SAFETY: the kernel only reads.
        unsafe { launch.launch() }?;
        drop(launch);
        let mark = session.mark();
        two.copy_from_array(&array, &mut target)?;
        assert!(session.names_since(mark).contains(&"cuStreamWaitEvent"));
        drop(surface);
        Ok(array.close()?)
    });
}

#[test]
fn s02_destroying_waits_for_what_was_noted_by_hand() {
    clean(|session| {
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let mut unrelated = two.alloc::<u32>(16)?;
        let mut array = array(1)?;
        let shape = ArrayShape::D2 { width: 8, height: 8 };
        let mipmap = MipmappedArray::<u32>::new(&primary(), shape, 2, ArrayFlags::default())?;
        one.upload_to_array(&[1; 16], &mut array)?;
        // Stands for work that the library does not know.
        two.fill(&mut unrelated, 1)?;
        let mark = session.mark();
        // SAFETY: only work on this stream uses the array or the other buffer.
        unsafe { array.note_use(&two, Access::Read) }?;
        assert!(session.names_since(mark).contains(&"cuStreamWaitEvent"));
        drop(array);
        assert_eq!(session.pending_ops(), 0);
        two.fill(&mut unrelated, 2)?;
        // SAFETY: only work on this stream uses the mipmap.
        unsafe { mipmap.note_use(&two, Access::Write) }?;
        drop(mipmap);
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}
