//! NCCL: collectives between the devices of one process.

use std::ffi::{c_int, c_void};
use std::fmt::Debug;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::time::Duration;

use cuda_core::nccl::{
    Communicator, CommunicatorOptions, Element, Ranks, Reduction, UniqueId, group,
};
use cuda_core::{
    Complex64, Context, Device, DeviceBuffer, Error, NcclError, Pod, Result, Stream, Version, bf16,
    f16,
};
use support::{Driver, gpu_test, refusal};

mod bad_input;
mod blocking;
mod growth;
mod life;
mod order;
mod registered;

/// Returns the first `count` devices, with a stream on each.
fn devices(count: u32) -> Result<(Vec<Context>, Vec<Stream>)> {
    let devices = (0..count).map(Device::get).collect::<Result<Vec<_>>>()?;
    let contexts = Device::contexts(devices)?;
    let streams = contexts.iter().map(Context::create_stream).collect::<Result<_>>()?;
    Ok((contexts, streams))
}

/// The ranks of a communicator, which end together: if a device is lost, the other rank would wait for it.
struct Apart(Vec<Communicator>);

impl Deref for Apart {
    type Target = [Communicator];

    fn deref(&self) -> &[Communicator] {
        &self.0
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.iter().for_each(|rank| drop(rank.abort()));
    }
}

/// Joins ranks whose calls do not block.
fn unblocked(contexts: &[Context]) -> Result<Ranks> {
    Ranks::init_all_with(contexts, &CommunicatorOptions::new().blocking(false))
}

/// Joins a communicator of these devices, rank by rank, whose calls do not block.
fn apart(contexts: &[Context]) -> Result<Apart> {
    // SAFETY: the tests enqueue the same operations at all.
    Ok(Apart(unsafe { unblocked(contexts)?.into_communicators() }))
}

const SHORT: Duration = Duration::from_millis(200);

/// Options for calls that do not block, and that may take only a moment, or as long as real ranks take to
/// join.
fn impatience() -> CommunicatorOptions {
    CommunicatorOptions::new().blocking(false).limit(match Driver::selected() {
        Driver::Simulated { .. } => SHORT,
        Driver::Loaded => Duration::from_secs(10),
    })
}

/// Allocates a buffer for each rank, with the elements that `at` returns for it.
fn buffers<T: Pod>(
    streams: &[Stream],
    at: impl Fn(usize) -> Vec<T>,
) -> Result<Vec<DeviceBuffer<T>>> {
    let upload = |(rank, stream): (usize, &Stream)| stream.upload_new(&at(rank)[..]);
    streams.iter().enumerate().map(upload).collect()
}

/// Returns the elements of each buffer.
fn values<T: Pod>(streams: &[Stream], buffers: &[DeviceBuffer<T>]) -> Result<Vec<Vec<T>>> {
    streams.iter().zip(buffers).map(|(stream, buffer)| stream.download_vec(buffer)).collect()
}

/// Joins ranks whose calls do not block, connects them by an all-reduce of ones, and returns them with the
/// buffers of the sums.
fn connected(contexts: &[Context], streams: &[Stream]) -> Result<(Ranks, Vec<DeviceBuffer<u32>>)> {
    let (ranks, mut sums) = (unblocked(contexts)?, buffers(streams, |_| vec![1u32; 1000])?);
    ranks.on(streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
    streams.iter().try_for_each(|stream| stream.synchronize())?;
    Ok((ranks, sums))
}

/// Returns `len` consecutive numbers from `first` on.
fn from(first: u32, len: u32) -> Vec<u32> {
    (first..first + len).collect()
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_all_reduce_at_all_ranks() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        assert_eq!(ranks.len(), 2);
        let sources = buffers(&streams, |rank| vec![1.0f32 + rank as f32; 1000])?;
        let mut sums = buffers(&streams, |_| vec![0.0f32; 1000])?;
        ranks.on(&streams)?.all_reduce(&sources, &mut sums, Reduction::Sum)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![3.0; 1000]; 2]);
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Average)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![3.0; 1000]; 2]);
        ranks.wait(&streams)?;
        ranks.finalize()
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_all_operations_at_all_ranks() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let on = || ranks.on(&streams);
        // The sources are 0 1 2 3 and 10 11 12 13.
        let sources = buffers(&streams, |rank| from(10 * rank as u32, 4))?;
        let mut wide = buffers(&streams, |_| vec![0u32; 8])?;
        on()?.all_gather(&sources, &mut wide)?;
        assert_eq!(values(&streams, &wide)?, vec![[from(0, 4), from(10, 4)].concat(); 2]);
        let mut narrow = buffers(&streams, |_| vec![0u32; 2])?;
        on()?.reduce_scatter(&sources, &mut narrow, Reduction::Sum)?;
        assert_eq!(values(&streams, &narrow)?, [[10, 12], [14, 16]]);
        let mut swapped = buffers(&streams, |_| vec![0u32; 4])?;
        on()?.all_to_all(&sources, &mut swapped)?;
        assert_eq!(values(&streams, &swapped)?, [[0, 1, 10, 11], [2, 3, 12, 13]]);
        let mut most = streams[1].alloc_zeroed::<u32>(4)?;
        on()?.reduce(&sources, &mut most, 1, Reduction::Max)?;
        assert_eq!(streams[1].download_vec(&most)?, from(10, 4));
        on()?.broadcast_in_place(&mut swapped, 1)?;
        assert_eq!(values(&streams, &swapped)?, [[2, 3, 12, 13]; 2]);
        on()?.broadcast(&most, &mut swapped, 1)?;
        assert_eq!(values(&streams, &swapped)?, vec![from(10, 4); 2]);
        on()?.all_gather_in_place(&mut swapped)?;
        on()?.reduce_in_place(&mut swapped, 0, Reduction::Sum)?;
        assert_eq!(streams[0].download_vec(&swapped[0])?, [20, 22, 24, 26]);
        let mut sums = buffers(&streams, |rank| from(rank as u32, 2))?;
        on()?.reduce_scatter_in_place(&mut sums, Reduction::Sum)?;
        assert_eq!([values(&streams, &sums)?[0][0], values(&streams, &sums)?[1][1]], [1, 3]);
        // Without elements there is no call.
        let mut none = buffers(&streams, |_| Vec::<u32>::new())?;
        on()?.all_reduce_in_place(&mut none, Reduction::Sum)
    }
}

/// All-reduces 3 and 5 by each reduction.
fn reduces<T: Element + PartialEq + Debug>(
    ranks: &Ranks,
    streams: &[Stream],
    of: impl Fn(f32) -> T,
) -> Result<()> {
    let scaled = Reduction::ScaledSum(of(2.0));
    let expected = [
        (Reduction::Sum, 8.0),
        (Reduction::Product, 15.0),
        (Reduction::Min, 3.0),
        (Reduction::Max, 5.0),
        (Reduction::Average, 4.0),
        (scaled, 16.0),
    ];
    for (reduction, value) in expected {
        let mut buffers = buffers(streams, |rank| vec![of(3.0 + 2.0 * rank as f32); 7])?;
        ranks.on(streams)?.all_reduce_in_place(&mut buffers, reduction)?;
        assert_eq!(values(streams, &buffers)?, [[of(value); 7], [of(value); 7]], "{reduction:?}");
    }
    Ok(())
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_elements_and_reductions() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        reduces(&ranks, &streams, |value| value as i8)?;
        reduces(&ranks, &streams, |value| value as u8)?;
        reduces(&ranks, &streams, |value| value as i32)?;
        reduces(&ranks, &streams, |value| value as u32)?;
        reduces(&ranks, &streams, |value| value as i64)?;
        reduces(&ranks, &streams, |value| value as u64)?;
        reduces(&ranks, &streams, f16::from_f32)?;
        reduces(&ranks, &streams, bf16::from_f32)?;
        reduces(&ranks, &streams, |value| value)?;
        reduces(&ranks, &streams, f64::from)
    }
}

/// Copies elements, which `of` makes from numbers, between two ranks.
fn copies<T: Pod + PartialEq + Debug>(
    ranks: &Ranks,
    streams: &[Stream],
    of: impl Fn(u32) -> T,
) -> Result<()> {
    let list = |numbers: &[u32]| numbers.iter().map(|number| of(*number)).collect::<Vec<_>>();
    let on = || ranks.on(streams);
    let sources = buffers(streams, |rank| list(&from(10 * rank as u32, 2)))?;
    let mut wide = buffers(streams, |_| list(&[0; 4]))?;
    on()?.all_gather(&sources, &mut wide)?;
    assert_eq!(values(streams, &wide)?, vec![list(&[0, 1, 10, 11]); 2]);
    let mut swapped = buffers(streams, |_| list(&[0; 4]))?;
    on()?.all_to_all(&wide, &mut swapped)?;
    assert_eq!(values(streams, &swapped)?, [list(&[0, 1, 0, 1]), list(&[10, 11, 10, 11])]);
    on()?.broadcast_in_place(&mut swapped, 1)?;
    assert_eq!(values(streams, &swapped)?, vec![list(&[10, 11, 10, 11]); 2]);
    let [zero, one] = &mut wide[..] else { unreachable!("there are two ranks") };
    on()?.send_receive([((0, &sources[0]), (1, one.slice_mut(2..)?))])?;
    on()?.send_receive([((1, &sources[1]), (0, zero.slice_mut(..2)?))])?;
    assert_eq!(values(streams, &wide)?, [list(&[10, 11, 10, 11]), list(&[0, 1, 0, 1])]);
    Ok(())
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_elements_that_are_only_copied() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        copies(&ranks, &streams, |number| number as u16)?;
        copies(&ranks, &streams, |number| [number as u8; 3])?;
        copies(&ranks, &streams, |number| Complex64::new(f64::from(number), -1.0))
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_functions_by_name() -> Result<()> {
        let missing = |name, op: &str| {
            let found = cuda_core::nccl::symbol(name);
            let Err(Error::Nccl(it)) = &found else { panic!("{found:?}") };
            let NcclError::Missing { op: lacks, .. } = &**it else { panic!("{it:?}") };
            assert_eq!(*lacks, op);
        };
        missing(c"ncclNothing", "ncclNothing");
        match Driver::selected() {
            // The program provides its functions.
            Driver::Simulated { .. } => missing(c"ncclAllReduce", "ncclAllReduce"),
            Driver::Loaded => {
                type GetVersion = unsafe extern "C" fn(&mut c_int) -> c_int;
                let get = cuda_core::nccl::symbol(c"ncclGetVersion")?;
                // SAFETY: `nccl.h` declares the function with this type.
                let get = unsafe { std::mem::transmute::<NonNull<c_void>, GetVersion>(get) };
                let mut code = 0;
                // SAFETY: it writes one number, to a local.
                assert_eq!(unsafe { get(&mut code) }, 0);
                let found = Version::new(code as u32 / 10_000, code as u32 % 10_000 / 100);
                assert_eq!(found, cuda_core::nccl::version()?);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_ranks_of_two_threads() -> Result<()> {
        let (contexts, _) = devices(2)?;
        let id = UniqueId::new()?;
        let at = |rank: usize| -> Result<Vec<u32>> {
            let context = &contexts[rank];
            // SAFETY: both threads run this closure.
            let communicator = unsafe { Communicator::init_rank(context, id, rank, 2) }?;
            assert_eq!((communicator.rank(), communicator.size()), (rank, 2));
            assert_eq!(communicator.context(), context);
            let stream = context.create_stream()?;
            let mut buffer = stream.upload_new(&from(10 * rank as u32, 4)[..])?;
            communicator.on(&stream)?.all_gather_in_place(&mut buffer)?; // 0 1 12 13
            communicator.on(&stream)?.reduce_scatter_in_place(&mut buffer, Reduction::Sum)?;
            let mut part = stream.alloc(2)?;
            stream.copy(buffer.slice(2 * rank..2 * rank + 2)?, &mut part)?;
            let mut seen = stream.download_vec(&part)?;
            let mut one = stream.upload_new(&[7 + rank as u32])?;
            communicator.on(&stream)?.reduce_in_place(&mut one, 0, Reduction::Product)?;
            communicator.on(&stream)?.broadcast_in_place(&mut one, 0)?;
            seen.extend(stream.download_vec(&one)?);
            let whole = (rank == 1).then(|| one.as_view());
            let mut copy = stream.alloc(1)?;
            communicator.on(&stream)?.broadcast(whole, &mut copy, 1)?;
            match rank {
                0 => communicator.on(&stream)?.send(&copy, 1)?,
                _ => communicator.on(&stream)?.receive(&mut copy, 0)?,
            }
            communicator.wait(&stream)?;
            communicator.async_error()?;
            seen.extend(stream.download_vec(&copy)?);
            communicator.finalize()?;
            Ok(seen)
        };
        let (zero, one) = std::thread::scope(|scope| {
            let one = scope.spawn(|| at(1));
            (at(0), one.join().expect("it does not panic"))
        });
        assert_eq!(zero?, [0, 2, 56, 56]);
        assert_eq!(one?, [24, 26, 56, 56]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_ranks_of_two_threads_from_one_buffer_to_another() -> Result<()> {
        let (contexts, _) = devices(2)?;
        let ids = [UniqueId::new()?, UniqueId::new()?];
        // An older NCCL accepts only one id.
        let several = cuda_core::nccl::version()? >= Version::new(2, 23);
        let ids = &ids[..if several { 2 } else { 1 }];
        let options = CommunicatorOptions::new().min_ctas(1).max_ctas(2).cga_cluster_size(0);
        let at = |rank: usize| -> Result<[Vec<u32>; 4]> {
            let context = &contexts[rank];
            // SAFETY: both threads run this closure.
            let joined = unsafe { Communicator::init_rank_with(context, ids, rank, 2, &options) };
            let communicator = joined?;
            let stream = contexts[rank].create_stream()?;
            let own = stream.upload_new(&from(10 * rank as u32, 2)[..])?;
            let mut all = stream.alloc(4)?;
            communicator.on(&stream)?.all_gather(&own, &mut all)?;
            let mut sums = stream.alloc(2)?;
            communicator.on(&stream)?.reduce_scatter(&all, &mut sums, Reduction::Sum)?;
            let mut swapped = stream.alloc(2)?;
            communicator.on(&stream)?.all_to_all(&sums, &mut swapped)?;
            let mut most = stream.upload_new(&[0u32; 2])?;
            let at_root = (rank == 1).then(|| most.as_view_mut());
            communicator.on(&stream)?.reduce(&swapped, at_root, 1, Reduction::Max)?;
            communicator.wait(&stream)?;
            let seen = [&all, &sums, &swapped, &most].map(|it| stream.download_vec(it));
            communicator.finalize()?;
            let [all, sums, swapped, most] = seen;
            Ok([all?, sums?, swapped?, most?])
        };
        let (zero, one) = std::thread::scope(|scope| {
            let one = scope.spawn(|| at(1));
            (at(0), one.join().expect("it does not panic"))
        });
        let all = vec![0, 1, 10, 11];
        assert_eq!(zero?, [all.clone(), vec![0, 2], vec![0, 20], vec![0, 0]]);
        assert_eq!(one?, [all, vec![20, 22], vec![2, 22], vec![2, 22]]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_ranks_send_to_each_other_in_a_group() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        let sources = buffers(&streams, |rank| from(rank as u32, 5))?;
        let mut received = buffers(&streams, |_| vec![0u32; 5])?;
        group(|group| {
            for (rank, received) in received.iter_mut().enumerate() {
                group.on(&pair[rank], &streams[rank])?.send(&sources[rank], 1 - rank)?;
                group.on(&pair[rank], &streams[rank])?.receive(received, 1 - rank)?;
            }
            Ok(())
        })?;
        assert_eq!(values(&streams, &received)?, [from(1, 5), from(0, 5)]);
        // Nothing is enqueued if the closure fails.
        let failed = group(|group| {
            group.on(&pair[0], &streams[0])?.send(&sources[0], 1)?;
            Device::get(1000).map(drop)
        });
        assert!(failed.is_err());
        streams[0].synchronize()
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_all_ranks_send_and_receive() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let sources = buffers(&streams, |rank| from(10 * rank as u32, 6))?;
        let mut received = buffers(&streams, |_| vec![0u32; 8])?;
        let [zero, one] = &mut received[..] else { unreachable!("there are two") };
        let (low, high) = one.split_at_mut(3)?;
        let (begin, mut end) = zero.split_at_mut(6)?;
        let empty = end.slice_mut(..0)?;
        ranks.on(&streams)?.send_receive([
            ((0, sources[0].slice(..3)?), (1, low)),
            ((0, sources[0].slice(4..4)?), (0, empty)),
            ((0, sources[0].slice(1..)?), (1, high)),
            ((1, sources[1].slice(..)?), (0, begin)),
        ])?;
        ranks.on(&streams)?.send_receive([((0, &sources[0]), (0, zero.slice_mut(2..)?))])?;
        let expected = [[10, 11, 0, 1, 2, 3, 4, 5], [0, 1, 2, 1, 2, 3, 4, 5]];
        assert_eq!(values(&streams, &received)?, expected);

        let [zero, one] = &mut received[..] else { unreachable!("there are two") };
        let refused = ranks.on(&streams)?.send_receive([((0, &sources[0]), (1, &mut *one))]);
        assert!(matches!(refused, Err(Error::LengthMismatch(_))), "{refused:?}");
        for ends in [(2, 1), (0, 2)] {
            let part = one.slice_mut(..6)?;
            let refused = ranks.on(&streams)?.send_receive([((ends.0, &sources[0]), (ends.1, part))]);
            assert!(refusal(refused).contains("there is no rank 2 among 2"));
        }
        // The first copy is not enqueued either.
        let refused = ranks.on(&streams)?.send_receive([
            ((0, sources[0].slice(..1)?), (1, one.slice_mut(7..)?)),
            ((1, sources[0].slice(..1)?), (0, zero.slice_mut(7..)?)),
        ]);
        let sender = "memory of rank 1";
        assert!(matches!(&refused, Err(Error::WrongDevice(it)) if it.what == sender), "{refused:?}");
        assert_eq!(values(&streams, &received)?, expected);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_operations_of_all_ranks_in_a_group() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut layers = Vec::new();
        for length in 1..12 {
            layers.push(buffers(&streams, |rank| vec![1 + rank as u32; length])?);
        }
        group(|group| {
            layers.iter_mut().try_for_each(|layer| {
                group.on_ranks(&ranks, &streams)?.all_reduce_in_place(layer, Reduction::Sum)
            })
        })?;
        for (layer, length) in layers.iter().zip(1..) {
            assert_eq!(values(&streams, layer)?, vec![vec![3; length]; 2]);
        }
        // An operation that some ranks cannot take part in fails the group, even if its error is ignored.
        let mut unequal = vec![streams[0].alloc::<u32>(1)?, streams[1].alloc::<u32>(2)?];
        let refused = group(|group| {
            group.on_ranks(&ranks, &streams)?.all_reduce_in_place(&mut layers[0], Reduction::Sum)?;
            let sum = Reduction::Sum;
            drop(group.on_ranks(&ranks, &streams)?.all_reduce_in_place(&mut unequal, sum));
            Ok(())
        });
        assert!(refusal(refused).contains("rank 0 has 1 elements and rank 1 has 2"));
        let refused = group(|group| {
            let on = group.on_ranks(&ranks, &streams)?;
            let first = layers[0].iter_mut().take(1);
            let endless = first.chain(std::iter::from_fn(|| panic!("on purpose")));
            let reduce = || on.all_reduce_in_place(endless, Reduction::Sum);
            assert!(catch_unwind(AssertUnwindSafe(reduce)).is_err());
            Ok(())
        });
        assert!(refusal(refused).contains("not listed to its end"));
        assert_eq!(values(&streams, &layers[0])?, [[3], [3]]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_split_and_join_again() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        for ranks in [unblocked(&contexts)?, Ranks::init_all(&contexts)?] {
            // SAFETY: both split alike.
            let pair = Apart(unsafe { ranks.into_communicators() });
            let split = |rank: usize, color, key| -> Result<_> {
                let split = pair[rank].split(color, key)?;
                Ok(split.map(|half| (half.rank(), half.size())))
            };
            let both = |at: [(Option<u32>, i32); 2]| -> Result<_> {
                std::thread::scope(|scope| {
                    let one = scope.spawn(|| split(1, at[1].0, at[1].1));
                    Ok([split(0, at[0].0, at[0].1)?, one.join().expect("it does not panic")?])
                })
            };
            assert_eq!(both([(Some(0), 1), (Some(0), 0)])?, [Some((1, 2)), Some((0, 2))]);
            assert_eq!(both([(Some(0), 0), (Some(1), 0)])?, [Some((0, 1)), Some((0, 1))]);
            assert_eq!(both([(Some(3), 0), (None, 0)])?, [Some((0, 1)), None]);
        }
        // A new communicator with the same devices.
        let mut buffers = buffers(&streams, |_| vec![1u32])?;
        let ranks = Ranks::init_all(&contexts)?;
        ranks.on(&streams)?.all_reduce_in_place(&mut buffers, Reduction::Sum)?;
        assert_eq!(values(&streams, &buffers)?, [[2], [2]]);
        Ok(())
    }
}
