//! NCCL's all-reduces on two devices, in one process, compared with the same calls of the raw library.

use std::ffi::{CStr, OsString, c_int, c_void};
use std::sync::Arc;
use std::{env, mem};

use anyhow::ensure;
use cuda_core::nccl::{self, Communicator, CommunicatorOptions, Ranks, Reduction, UniqueId};
use cuda_core::{Context, Device, DeviceBuffer, NcclError, Stream};
use cuda_sys::{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult, CUstream, os};

use super::{SMALL, TRANSFERS};
use crate::bench::measure::pair;
use crate::bench::raw::{code_of, first_error};
use crate::bench::{Effort, Fixture, Goal, Measured, Operation};
use crate::refuse;

/// The number of ranks, one for each device.
pub(super) const RANKS: usize = 2;

pub(super) fn operations() -> Vec<Operation> {
    let thread = "NCCL starts a thread for each call that does not block; the raw calls block";
    let enqueues =
        |name, blocking| Operation::new(name, move |fixture| enqueue(fixture, blocking)).gpus(2);
    vec![
        Operation::new("all-reduce enqueue 4 KiB, one rank", enqueue_one).goal(Goal::More(100.0)),
        enqueues("all-reduce enqueue 4 KiB, 2 devices", true).goal(Goal::More(100.0)),
        enqueues("all-reduce enqueue 4 KiB, 2 devices, with a limit", false).without_goal(thread),
        Operation::new("all-reduce + wait 1 GiB, 2 devices", whole).goal(Goal::Share(0.99)).gpus(2),
        super::processes::operation(),
    ]
}

fn enqueue(fixture: &Fixture, blocking: bool) -> anyhow::Result<Measured> {
    let (mut ours, raw) = pairs(fixture, SMALL, blocking)?;
    let effort = fixture.effort.at_most(101);
    let both = [ours.streams.clone(), raw.streams.clone()].concat();
    pair(effort, 20, || ours.reduce(), || raw.reduce(), || settle(&both))
}

/// Measures enqueues as in a process with one rank. NCCL copies.
fn enqueue_one(fixture: &Fixture) -> anyhow::Result<Measured> {
    require_nccl()?;
    let (context, id) = (&fixture.context, UniqueId::new()?);
    let options = CommunicatorOptions::new().blocking(true);
    // SAFETY: the only rank.
    let rank = unsafe { Communicator::init_rank_with(context, id, 0, 1, &options) }?;
    let (stream, len) = (&fixture.stream, SMALL / size_of::<f32>());
    let (from, mut to) = (stream.alloc_zeroed::<f32>(len)?, stream.alloc::<f32>(len)?);
    let calls = RawCalls::find(fixture.effort == Effort::SIMULATED)?;
    let raw_stream = fixture.raw.as_raw();
    let (source, destination) = (from.as_raw() as *mut c_void, to.as_raw() as *mut c_void);
    let (communicator, all_reduce) = (rank.as_raw(), calls.all_reduce);
    fixture.pair(
        20,
        || rank.on(stream)?.all_reduce(&from, &mut to, Reduction::Sum),
        || {
            // SAFETY: communicator, stream and buffers are live and of one device; the bytes mean nothing.
            let code = unsafe {
                all_reduce(source, destination, len, FLOAT32, SUM, communicator, raw_stream)
            };
            if code == 0 { CUDA_SUCCESS } else { CUDA_ERROR_UNKNOWN }
        },
    )
}

fn whole(fixture: &Fixture) -> anyhow::Result<Measured> {
    let bytes = fixture.effort.bytes(1 << 30);
    let (mut ours, raw) = pairs(fixture, bytes, true)?;
    let ours = || ours.reduce().and_then(|()| settle(&ours.streams));
    let raw = || first_error([raw.reduce(), code_of(settle(&raw.streams))]);
    Ok(pair(fixture.effort.at_most(TRANSFERS), 1, ours, raw, || Ok(()))?.moving(bytes))
}

pub(super) fn require_nccl() -> anyhow::Result<()> {
    match nccl::version() {
        Err(cuda_core::Error::Nccl(why)) if matches!(*why, NcclError::NotFound { .. }) => {
            Err(refuse("there is no NCCL; CUDA_CORE_NCCL names one to take"))
        }
        _ => Ok(()),
    }
}

fn settle(streams: &[Stream]) -> cuda_core::Result<()> {
    streams.iter().try_for_each(Stream::synchronize)
}

/// Creates operations of the library, and raw ones, each with streams and buffers of their own. Both use one
/// communicator, unless the library's does not block: a process's first communicator is slower.
fn pairs(fixture: &Fixture, bytes: usize, blocking: bool) -> anyhow::Result<(Ours, Raw)> {
    require_nccl()?;
    let contexts = Device::contexts(Device::all()?.take(RANKS))?;
    let join = |blocking| {
        let options = CommunicatorOptions::new().blocking(blocking);
        Ranks::init_all_with(&contexts, &options).map(Arc::new)
    };
    let blocks = join(true)?;
    let ranks = if blocking { blocks.clone() } else { join(false)? };
    let side = || -> cuda_core::Result<(Vec<Stream>, Vec<DeviceBuffer<f32>>)> {
        let streams: Vec<_> =
            contexts.iter().map(Context::create_stream).collect::<Result<_, _>>()?;
        let zeroed = |stream: &Stream| stream.alloc_zeroed(bytes / size_of::<f32>());
        let buffers = streams.iter().map(zeroed).collect::<Result<_, _>>()?;
        settle(&streams)?;
        Ok((streams, buffers))
    };
    let ((streams, buffers), (raw_streams, raw_buffers)) = (side()?, side()?);
    let raw = Raw {
        calls: RawCalls::find(fixture.effort == Effort::SIMULATED)?,
        communicators: blocks.as_raw().collect(),
        streams: raw_streams,
        buffers: raw_buffers,
        _ranks: Some(blocks),
    };
    Ok((Ours { ranks, streams, buffers }, raw))
}

struct Ours {
    ranks: Arc<Ranks>,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<f32>>,
}

impl Ours {
    fn reduce(&mut self) -> cuda_core::Result<()> {
        self.ranks.on(&self.streams)?.all_reduce_in_place(&mut self.buffers, Reduction::Sum)
    }
}

/// Functions of `nccl.h`.
pub(super) struct RawCalls {
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        *mut c_void,
        CUstream,
    ) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
}

/// `ncclFloat32` and `ncclSum`.
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

impl RawCalls {
    /// Finds the functions of the library that `cuda-core` has loaded.
    #[expect(clippy::missing_transmute_annotations, reason = "the fields' types")]
    pub(super) fn find(simulated: bool) -> anyhow::Result<Self> {
        let name = env::var_os("CUDA_CORE_NCCL").filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| OsString::from("libnccl.so.2"));
        // SAFETY: NCCL's initialisers only set up the library; `cuda-core` has loaded it already.
        let open = || unsafe { os::Library::open(&name) }.map_err(anyhow::Error::msg);
        let library = if simulated { None } else { Some(open()?) };
        let find = |name: &CStr| {
            let address = match &library {
                Some(library) => library.symbol(name),
                None => cuda_sim::symbol(name),
            };
            ensure!(!address.is_null(), "NCCL lacks {name:?}");
            Ok(address)
        };
        Ok(Self {
            // SAFETY: not null, so that function, which `nccl.h` declares with this signature.
            all_reduce: unsafe { mem::transmute::<*const c_void, _>(find(c"ncclAllReduce")?) },
            // SAFETY: as above.
            group_start: unsafe { mem::transmute::<*const c_void, _>(find(c"ncclGroupStart")?) },
            // SAFETY: as above.
            group_end: unsafe { mem::transmute::<*const c_void, _>(find(c"ncclGroupEnd")?) },
        })
    }
}

/// Raw calls of NCCL, which block.
pub(super) struct Raw {
    pub(super) calls: RawCalls,
    // INVARIANT: live communicators of this process's ranks. The streams and buffers are on their devices, in
    // the same order.
    pub(super) communicators: Vec<*mut c_void>,
    pub(super) streams: Vec<Stream>,
    pub(super) buffers: Vec<DeviceBuffer<f32>>,
    /// The owner of the communicators, unless the caller keeps them.
    pub(super) _ranks: Option<Arc<Ranks>>,
}

impl Raw {
    pub(super) fn reduce(&self) -> CUresult {
        let RawCalls { all_reduce, group_start, group_end } = self.calls;
        // SAFETY: no precondition.
        let mut code = unsafe { group_start() };
        let memory = self.streams.iter().zip(&self.buffers);
        for (&rank, (stream, buffer)) in self.communicators.iter().zip(memory) {
            let (data, count) = (buffer.as_raw() as *mut c_void, buffer.len());
            let stream = stream.as_raw();
            // SAFETY: communicator, stream and buffer are live and of one device; nothing else uses the
            // buffer until the streams are awaited.
            code |= unsafe { all_reduce(data, data, count, FLOAT32, SUM, rank, stream) };
        }
        // SAFETY: the group was begun above.
        code |= unsafe { group_end() };
        if code == 0 { CUDA_SUCCESS } else { CUDA_ERROR_UNKNOWN }
    }
}
