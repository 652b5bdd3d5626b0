//! Tensors handed over to other libraries, and taken from them.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use cuda_core::dlpack::{
    ArrayInterface, Consumer, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor, ImportedTensor, Tensor, TensorElement,
};
use cuda_core::{
    Access, CachingPool, Complex32, Device, DeviceBuffer, Error, Graph, Rejected, Result,
    SharedSlice, Stream, bf16, f16,
};
use cuda_sys::cuMemcpyDtoDAsync_v2;
use support::{check, gpu_test, one_stream, refusal, stall, two_streams};

use crate::foreign_streams::Raw;

mod booleans;
mod captured;
mod deleted;

type Versioned = NonNull<DLManagedTensorVersioned>;

/// A tensor that was handed over, as its consumer holds it. Dropping it calls the deleter.
// INVARIANT: the tensor is live.
struct HandedOver(Versioned);

// SAFETY: the consumer may delete it on any thread.
unsafe impl Send for HandedOver {}

impl HandedOver {
    fn new(tensor: Tensor, consumer: &Consumer) -> Result<Self> {
        Ok(Self(tensor.into_raw(consumer)?))
    }

    /// Passes the tensor on to another consumer.
    fn give(self) -> *mut DLManagedTensorVersioned {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        // SAFETY: the tensor is live.
        let deleter = unsafe { (*self.0.as_ptr()).deleter }.expect("a deleter");
        // SAFETY: called once, and the tensor is not used after.
        unsafe { deleter(self.0.as_ptr()) };
    }
}

/// Calls the deleter like a consumer, on a thread of its own without a current context.
fn delete_elsewhere(tensor: HandedOver) {
    let deleting = thread::spawn(move || {
        drop(tensor);
        assert!(support::context::current().is_null(), "nothing is current, as before");
    });
    deleting.join().expect("no panic");
}

/// Returns copies of the tensor's struct, shape and strides.
fn fields(HandedOver(tensor): &HandedOver) -> (DLTensor, Vec<i64>, Vec<i64>) {
    // SAFETY: the tensor is live.
    let tensor = unsafe { (*tensor.as_ptr()).dl_tensor };
    let numbers = |first: *mut i64| {
        // SAFETY: `first` points to `ndim` numbers.
        unsafe { std::slice::from_raw_parts(first, tensor.ndim as usize) }.to_vec()
    };
    (tensor, numbers(tensor.shape), numbers(tensor.strides))
}

fn rejected<X, Y>(result: Result<X, Rejected<Y>>) -> (Error, Y) {
    match result {
        Ok(_) => panic!("nothing was rejected"),
        Err(Rejected { error, value }) => (error, value),
    }
}

gpu_test! {
    needs 1;
    fn e_a_tensor_handed_over_and_taken_back() -> Result<()> {
        let (context, stream) = one_stream()?;
        let numbers: Vec<f32> = (0..24u8).map(f32::from).collect();
        let buffer = stream.upload_new(&numbers)?;
        let address = buffer.as_raw();
        let (error, buffer) = rejected(Tensor::new(buffer, &[5, 5], None));
        assert!(matches!(error, Error::Invalid(_)));
        let tensor = Tensor::new(buffer, &[2, 3, 4], None)?;
        assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3, 4][..], &[12, 4, 1][..]));
        assert_eq!(tensor.device(), context.device());
        let raw = HandedOver::new(tensor, &Consumer::Stream(stream.clone()))?;
        let (fields, shape, strides) = fields(&raw);
        assert_eq!((shape, strides), (vec![2, 3, 4], vec![12, 4, 1]));
        assert_eq!((fields.data.addr() as u64, fields.byte_offset), (address, 0));
        assert_eq!(fields.device, DLDevice { device_type: DLDevice::CUDA, device_id: 0 });
        assert_eq!(fields.dtype, DLDataType { code: DLDataType::FLOAT, bits: 32, lanes: 1 });
        // SAFETY: the tensor is live, comes from this crate, and was used only on this stream.
        let imported = unsafe { ImportedTensor::from_raw(raw.give(), &stream) }?;
        assert_eq!((imported.shape(), imported.is_read_only()), (&[2, 3, 4][..], false));
        assert!(imported.is_contiguous());
        let mut back = imported.into_buffer::<f32>()?;
        assert_eq!((back.as_raw(), back.len()), (address, 24));
        assert_eq!(stream.download_vec(&back)?, numbers);
        let other = context.create_stream()?;
        other.fill(&mut back, 2.0)?; // after `stream`
        assert_eq!(other.download_vec(&back)?, [2.0; 24]);
        Ok(back.close()?)
    }
}

gpu_test! {
    needs 1;
    fn e_shared_tensors_keep_their_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let weights = Arc::new(stream.upload_new(&[3i64; 100])?);
        let part = SharedSlice::from(&weights).slice(40..)?;
        let tensor = Tensor::shared(part, &[6, 10], None)?;
        let consumer = Consumer::Stream(context.create_stream()?);
        let (error, tensor) = rejected(tensor.into_raw_unversioned(&consumer));
        assert!(refusal::<()>(Err(error)).ends_with("can say: use `Tensor::into_raw`"));
        let one = HandedOver::new(tensor, &consumer)?;
        let two = Tensor::shared(&weights, &[100], None)?;
        let two = HandedOver::new(two, &Consumer::PerThread)?;
        assert_eq!(fields(&one).0.data.addr() as u64, weights.as_raw() + 320);
        assert_eq!(Arc::strong_count(&weights), 3);
        // SAFETY: the tensor is live, and nothing writes it.
        let imported = unsafe { ImportedTensor::from_raw(one.give(), &stream) }?;
        assert!(imported.is_read_only());
        let (error, imported) = rejected(imported.into_buffer::<i64>());
        assert!(refusal::<()>(Err(error)).contains("read-only"));
        let shared = imported.into_shared::<i64>()?;
        let shared = shared.into_buffer().expect_err("others may read it").value;
        assert_eq!(stream.download_vec(&shared.slice(50..)?)?, [3; 10]);
        drop(shared);
        assert_eq!(Arc::strong_count(&weights), 2, "its deleter was called");
        delete_elsewhere(two);
        let mut alone = Arc::into_inner(weights).expect("no other owner");
        stream.fill(&mut alone, 4)?; // after the consumers
        assert_eq!(stream.download_vec(&alone)?, [4; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_a_tensor_is_freed_behind_its_consumer() -> Result<()> {
        const BYTES: usize = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
        let (context, home, consumer) = two_streams()?;
        let per_thread = context.per_thread_stream()?;
        // With other allocators, the free makes the home stream or the host wait.
        let pool = CachingPool::shared()?.allocator();
        let mut sink = context.alloc::<u8>(BYTES)?;
        home.fill(&mut sink, 0)?;
        home.synchronize()?;
        for kind in [Consumer::Stream(consumer.clone()), Consumer::PerThread] {
            let used = match &kind {
                Consumer::Stream(stream) => stream.as_raw(),
                _ => ptr::without_provenance_mut(2),
            };
            let mut buffer = home.alloc_with::<u8>(&pool, BYTES)?;
            let (from, to) = (buffer.as_raw(), sink.as_raw());
            // Makes the calls beforehand that would wait after the stall.
            home.fill(&mut buffer, 1)?;
            home.synchronize()?;
            let first = stall(home.as_raw());
            home.fill(&mut buffer, 7)?;
            let tensor = HandedOver::new(Tensor::new(buffer, &[BYTES], None)?, &kind)?;
            let second = crate::stack::with(context.as_raw(), || {
                // SAFETY: the addresses are the tensor's memory, which is not deleted yet, and as many bytes
                // of `sink`, which nothing else uses; the stream is live.
                check("cuMemcpyDtoDAsync", unsafe { cuMemcpyDtoDAsync_v2(to, from, BYTES, used) });
                first.release(); // the consumer has waited for the fill
                // The first use is now known to be complete, so that only the deleter's mark protects the
                // memory from here on.
                match &kind {
                    Consumer::Stream(stream) => stream.synchronize()?,
                    _ => per_thread.synchronize()?,
                }
                assert_eq!(bytes_of(&sink)?, 7);
                let stalled = stall(used);
                // SAFETY: as above.
                check("cuMemcpyDtoDAsync", unsafe { cuMemcpyDtoDAsync_v2(to, from, BYTES, used) });
                Ok::<_, Error>(stalled)
            })?;
            home.synchronize()?;
            delete_elsewhere(tensor); // returns while the consumer is stalled
            // One of these allocations would get the same memory if it were not freed in order.
            let mut next = Vec::new();
            for _ in 0..4 {
                next.push(home.alloc_with::<u8>(&pool, BYTES)?);
            }
            next.iter_mut().try_for_each(|buffer| home.fill(buffer, 9))?;
            home.synchronize()?;
            second.release();
            context.synchronize()?;
            assert_eq!(bytes_of(&sink)?, 7, "what the consumer read");
            drop(next);
        }
        Ok(())
    }
}

/// Returns the value of all bytes, by a copy that the buffer's ledger does not record.
fn bytes_of(buffer: &DeviceBuffer<u8>) -> Result<u8> {
    let stream = buffer.context().create_stream()?;
    let bytes = stream.download_vec(buffer)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

gpu_test! {
    needs 1;
    fn e_consumers_of_the_protocol() -> Result<()> {
        let (context, stream) = one_stream()?;
        let of = |number| {
            // SAFETY: the only handle that `number` may be is that of `stream`, which is the owner.
            unsafe { Consumer::of_protocol(number, &context, Arc::new(stream.clone())) }
        };
        let legacy = context.default_stream()?;
        for number in [None, Some(1)] {
            assert!(matches!(of(number)?, Consumer::Stream(it) if it == legacy));
        }
        assert!(matches!(of(Some(2))?, Consumer::PerThread));
        assert!(matches!(of(Some(-1))?, Consumer::Synchronized));
        let handle = stream.as_raw().expose_provenance() as i64;
        assert!(matches!(of(Some(handle))?, Consumer::Stream(it) if it == stream));
        for number in [0, -2] {
            assert!(refusal(of(Some(number))).contains("no stream"));
        }
        for consumer in [of(None)?, of(Some(2))?, of(Some(-1))?] {
            let tensor = Tensor::new(stream.alloc_zeroed::<u8>(100)?, &[100], None)?;
            stream.synchronize()?;
            delete_elsewhere(HandedOver::new(tensor, &consumer)?);
        }
        // A tensor deleted in a host function is dropped on another thread.
        let tensor = Tensor::new(stream.alloc_zeroed::<u8>(100)?, &[100], None)?;
        let tensor = HandedOver::new(tensor, &Consumer::Stream(stream.clone()))?;
        stream.launch_host_func(move || drop(tensor))?;
        stream.synchronize()?;
        cuda_core::drops::flush();
        assert_eq!(stream.protocol_handle(), (0, stream.as_raw().addr()));
        let mut values = stream.alloc_zeroed::<f16>(6)?;
        assert_eq!(ArrayInterface::of(&values, &stream)?.data, (values.as_raw(), true));
        let writable = ArrayInterface::of_mut(values.slice_mut(2..)?, &stream)?;
        assert_eq!((writable.data, writable.shape), ((values.as_raw() + 4, false), vec![4]));
        let entries = ArrayInterface::of(values.slice(2..)?, &stream)?;
        assert_eq!((entries.shape, entries.typestr, entries.version), (vec![4], "<f2", 3));
        assert_eq!(entries.data, (values.as_raw() + 4, true));
        assert_eq!(entries.stream, Some(stream.as_raw().addr()));
        assert!(refusal(ArrayInterface::of(&values.cast::<bf16>()?, &stream))
            .contains("bf16"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e_tensors_that_are_not_handed_over() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut buffer = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut buffer, 1)?;
            let inner = Tensor::new(stream.alloc_zeroed::<u8>(4)?, &[4], None)?;
            let (error, _) = rejected(inner.into_raw(&Consumer::Stream(stream.clone())));
            // The memory belongs to the capture, and so does the tensor.
            assert!(matches!(error, Error::NotCapturable { .. } | Error::Invalid(_)), "{error}");
            Ok(())
        })?;
        let tensor = Tensor::new(buffer, &[10, 10], None)?;
        let (error, tensor) = rejected(tensor.into_raw(&Consumer::Stream(stream.clone())));
        assert!(refusal::<()>(Err(error)).contains("graph"));
        drop(graph);
        delete_elsewhere(HandedOver::new(tensor, &Consumer::Stream(stream))?);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn e_a_consumer_on_another_device() -> Result<()> {
        let [one, two] = [0, 1].map(Device::get);
        let (one, two) = (one?.create_stream()?, two?.create_stream()?);
        let tensor = Tensor::new(one.alloc_zeroed::<u8>(100)?, &[100], None)?;
        let (error, _) = rejected(tensor.into_raw(&Consumer::Stream(two.clone())));
        assert!(matches!(error, Error::WrongDevice(ref it) if it.memory == 0 && it.stream == 1));
        let tensor = Theirs::new::<u8>(1, &[100]);
        // SAFETY: the tensor is not used, since it is rejected.
        let imported = unsafe { ImportedTensor::from_raw(tensor.raw(), &two) }?;
        let (error, _) = rejected(imported.into_buffer::<u8>());
        assert!(matches!(error, Error::WrongDevice(ref it) if it.memory == 0 && it.stream == 1));
        Ok(())
    }
}

/// A tensor of another library that counts how often it is deleted.
struct Theirs {
    deleted: Arc<AtomicU32>,
    extents: Vec<i64>,
    tensor: DLManagedTensorVersioned,
}

unsafe extern "C" fn count(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor is live.
    let deleted = unsafe { (*tensor).manager_ctx }.cast::<AtomicU32>();
    // SAFETY: the counter lives as long as the tensor.
    let deleted = unsafe { &*deleted };
    deleted.fetch_add(1, Ordering::SeqCst);
}

impl Theirs {
    /// Creates a tensor of the elements at that address of device 0.
    fn new<T: TensorElement>(address: usize, shape: &[i64]) -> Self {
        let deleted = Arc::new(AtomicU32::new(0));
        let mut extents = shape.to_vec();
        let dl_tensor = DLTensor {
            data: ptr::without_provenance_mut(address),
            device: DLDevice { device_type: DLDevice::CUDA, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: T::DATA_TYPE,
            shape: extents.as_mut_ptr(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let tensor = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: Arc::as_ptr(&deleted).cast_mut().cast::<c_void>(),
            deleter: Some(count),
            flags: 0,
            dl_tensor,
        };
        Self { deleted, extents, tensor }
    }

    fn raw(&self) -> *mut DLManagedTensorVersioned {
        ptr::from_ref(&self.tensor).cast_mut()
    }

    fn import(&self, stream: &Stream) -> Result<ImportedTensor> {
        // SAFETY: the tensor lives as long as this value, which the tests keep. Its memory is accessed only
        // if the test made it accessible.
        unsafe { ImportedTensor::from_raw(self.raw(), stream) }
    }

    fn deleted(&self) -> u32 {
        self.deleted.load(Ordering::SeqCst)
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_a_taken_tensor_is_deleted_behind_its_uses() -> Result<()> {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<u32>(100)?;
        let theirs = Theirs::new::<u32>(memory.as_raw() as usize, &[10, 10]);
        let mut buffer = theirs.import(&stream)?.into_buffer::<u32>()?;
        let other = context.create_stream()?;
        other.fill(&mut buffer, 1)?;
        other.synchronize()?;
        // The producer's work on the named stream comes first, though it is not recorded.
        let theirs_too = Theirs::new::<u32>(memory.as_raw() as usize, &[10, 10]);
        drop(buffer);
        assert_eq!(theirs.deleted(), 1);
        let stalled = stall(stream.as_raw());
        let mut buffer = theirs_too.import(&stream)?.into_buffer::<u32>()?;
        other.fill(&mut buffer, 5)?;
        assert!(!other.query()?, "it waits for the stream that the producer made wait");
        stalled.release_after(std::time::Duration::from_millis(10));
        assert_eq!(theirs_too.deleted(), 0);
        drop(buffer); // waits
        assert_eq!(theirs_too.deleted(), 1);
        assert!(other.query()?, "the fill came first");
        // SAFETY: the tensors are deleted, so nothing else uses the memory.
        unsafe { memory.note_use(&stream, Access::Read) }?;
        assert_eq!(stream.download_vec(&memory)?, [5; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_a_taken_tensor_keeps_its_order_and_no_stream() -> Result<()> {
        let (context, other) = one_stream()?;
        let memory = context.alloc::<u32>(100)?;
        let theirs = Theirs::new::<u32>(memory.as_raw() as usize, &[100]);
        let producer = Raw::create(&context, &Arc::default());
        let stream = producer.wrap(&context)?;
        let stalled = stall(producer.stream.handle());
        let mut buffer = theirs.import(&stream)?.into_buffer::<u32>()?;
        drop(stream);
        assert_eq!(Arc::strong_count(&producer), 1, "the buffer does not keep it");
        other.fill(&mut buffer, 5)?;
        assert!(!other.query()?, "it waits for what the producer has enqueued");
        stalled.release();
        assert_eq!(other.download_vec(&buffer)?, [5; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e_tensors_that_are_refused() -> Result<()> {
        let (context, stream) = one_stream()?;
        let memory = context.alloc::<Complex32>(100)?;
        let address = memory.as_raw() as usize;
        let make = || Theirs::new::<Complex32>(address, &[4, 5]);
        // A tensor that cannot be imported stays the producer's.
        // SAFETY: null is allowed.
        assert!(refusal(unsafe { ImportedTensor::from_raw(ptr::null_mut(), &stream) })
            .contains("null"));
        // SAFETY: null is allowed.
        let none = unsafe { ImportedTensor::from_raw_unversioned(ptr::null_mut(), &stream) };
        assert!(refusal(none).contains("null"));
        let mut newer = make();
        newer.tensor.version = DLPackVersion { major: 2, minor: 0 };
        assert!(refusal(newer.import(&stream)).contains("DLPack 2.0"));
        let mut negative = make();
        negative.extents[1] = -1;
        assert!(refusal(negative.import(&stream)).contains("negative"));
        let mut shapeless = make();
        shapeless.tensor.dl_tensor.shape = ptr::null_mut();
        assert!(refusal(shapeless.import(&stream)).contains("null"));
        for kept in [newer, negative, shapeless] {
            assert_eq!(kept.deleted(), 0);
        }
        // An import that cannot be a buffer is returned, and deleted when the value is dropped.
        let refused = |change: &dyn Fn(&mut Theirs), why: &str| -> Result<()> {
            let mut theirs = make();
            change(&mut theirs);
            let (error, imported) = rejected(theirs.import(&stream)?.into_buffer::<Complex32>());
            let reason = refusal::<()>(Err(error));
            assert!(reason.contains(why), "{reason}");
            assert_eq!(theirs.deleted(), 0);
            drop(imported);
            assert_eq!(theirs.deleted(), 1);
            Ok(())
        };
        refused(&|it| it.tensor.dl_tensor.dtype = f64::DATA_TYPE, "float64, not complex64")?;
        refused(&|it| it.tensor.dl_tensor.dtype.lanes = 2, "complex64x2")?;
        refused(&|it| it.tensor.dl_tensor.device.device_type = 1, "DLDeviceType 1")?;
        refused(&|it| it.tensor.dl_tensor.byte_offset = 4, "aligned")?;
        refused(&|it| it.tensor.dl_tensor.data = ptr::null_mut(), "no address")?;
        refused(&|it| it.tensor.flags = DLManagedTensorVersioned::READ_ONLY, "read-only")?;
        let mut columns = [1, 4];
        let columns = columns.as_mut_ptr();
        refused(&|it| it.tensor.dl_tensor.strides = columns, "gaps")?;
        let mut huge = make();
        huge.extents.copy_from_slice(&[i64::MAX, i64::MAX]);
        let (error, _) = rejected(huge.import(&stream)?.into_buffer::<Complex32>());
        assert!(matches!(error, Error::SizeOverflow { .. }));
        // Strides of dimensions with one element are ignored.
        let (one, mut strides) = (Theirs::new::<Complex32>(address, &[1, 20, 1]), [7, 1, 9]);
        let mut one = one;
        one.tensor.dl_tensor.strides = strides.as_mut_ptr();
        one.tensor.dl_tensor.byte_offset = 80;
        let buffer = one.import(&stream)?.into_buffer::<Complex32>()?;
        assert_eq!((buffer.as_raw(), buffer.len()), (memory.as_raw() + 80, 20));
        drop(buffer);
        // A tensor without elements, and one without dimensions.
        let mut empty = Theirs::new::<Complex32>(0, &[3, 0]);
        empty.tensor.dl_tensor.data = ptr::null_mut();
        assert!(empty.import(&stream)?.into_buffer::<Complex32>()?.is_empty());
        assert_eq!(empty.deleted(), 1);
        let scalar = Theirs::new::<Complex32>(address, &[]);
        assert_eq!(scalar.import(&stream)?.into_buffer::<Complex32>()?.len(), 1);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e_the_struct_before_dlpack_1() -> Result<()> {
        let (_, stream) = one_stream()?;
        let buffer = stream.upload_new(&[1u16, 2, 3])?;
        let tensor = Tensor::new(buffer, &[3], Some(&[1]))?;
        let raw: NonNull<DLManagedTensor> =
            tensor.into_raw_unversioned(&Consumer::Stream(stream.clone()))?;
        // SAFETY: the tensor is live, and was used only on this stream.
        let imported = unsafe { ImportedTensor::from_raw_unversioned(raw.as_ptr(), &stream) }?;
        assert_eq!((imported.shape(), imported.strides()), (&[3][..], Some(&[1][..])));
        assert_eq!(imported.data_type(), u16::DATA_TYPE);
        assert_eq!(stream.download_vec(&imported.into_buffer::<u16>()?)?, [1, 2, 3]);
        Ok(())
    }
}
