//! The simulated NCCL.

mod collectives;
mod connect;
mod groups;
mod life;
mod misuse;
mod transfers;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use cuda_sim::Session;
pub(crate) use cuda_sys::os::NcclUniqueId as UniqueId;
use cuda_sys::*;

use crate::support::*;

pub(crate) type Comm = *mut c_void;

/// The fields of `ncclConfig_t` that all versions have.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const UNHANDLED_CUDA_ERROR: c_int = 1;
pub(crate) const SYSTEM_ERROR: c_int = 2;
pub(crate) const INVALID_ARGUMENT: c_int = 4;
pub(crate) const INVALID_USAGE: c_int = 5;
pub(crate) const REMOTE_ERROR: c_int = 6;
pub(crate) const IN_PROGRESS: c_int = 7;

pub(crate) const SUM: c_int = 0;
pub(crate) const MAX: c_int = 2;
pub(crate) const AVG: c_int = 4;
pub(crate) const U8: c_int = 1;
pub(crate) const U32: c_int = 3;
pub(crate) const F32: c_int = 7;

pub(crate) mod symbol {
    use std::ffi::{c_char, c_int, c_void};

    use cuda_sys::CUstream;

    use super::{Comm, Config, UniqueId};

    // The simulator in this process defines these functions.
    unsafe extern "C" {
        pub(crate) fn ncclGetVersion(version: *mut c_int) -> c_int;
        pub(crate) fn ncclGetUniqueId(id: *mut UniqueId) -> c_int;
        pub(crate) fn ncclGetErrorString(code: c_int) -> *const c_char;
        pub(crate) fn ncclGetLastError(comm: Comm) -> *const c_char;
        pub(crate) fn ncclCommInitRank(new: *mut Comm, n: c_int, id: UniqueId, r: c_int) -> c_int;
        pub(crate) fn ncclCommInitRankConfig(
            new: *mut Comm,
            ranks: c_int,
            id: UniqueId,
            rank: c_int,
            config: *const Config,
        ) -> c_int;
        pub(crate) fn ncclCommInitRankScalable(
            new: *mut Comm,
            ranks: c_int,
            rank: c_int,
            count: c_int,
            ids: *const UniqueId,
            config: *const Config,
        ) -> c_int;
        pub(crate) fn ncclCommInitAll(new: *mut Comm, count: c_int, on: *const c_int) -> c_int;
        pub(crate) fn ncclCommSplit(
            comm: Comm,
            color: c_int,
            key: c_int,
            new: *mut Comm,
            config: *const Config,
        ) -> c_int;
        pub(crate) fn ncclCommGetUniqueId(comm: Comm, id: *mut UniqueId) -> c_int;
        pub(crate) fn ncclCommGrow(
            comm: Comm,
            size: c_int,
            id: *const UniqueId,
            rank: c_int,
            new: *mut Comm,
            config: *const Config,
        ) -> c_int;
        pub(crate) fn ncclCommShrink(
            comm: Comm,
            excluded: *mut c_int,
            count: c_int,
            new: *mut Comm,
            config: *const Config,
            flags: c_int,
        ) -> c_int;
        pub(crate) fn ncclCommFinalize(comm: Comm) -> c_int;
        pub(crate) fn ncclCommDestroy(comm: Comm) -> c_int;
        pub(crate) fn ncclCommAbort(comm: Comm) -> c_int;
        pub(crate) fn ncclCommGetAsyncError(comm: Comm, error: *mut c_int) -> c_int;
        pub(crate) fn ncclCommCount(comm: Comm, count: *mut c_int) -> c_int;
        pub(crate) fn ncclCommCuDevice(comm: Comm, device: *mut c_int) -> c_int;
        pub(crate) fn ncclCommUserRank(comm: Comm, rank: *mut c_int) -> c_int;
        pub(crate) fn ncclGroupStart() -> c_int;
        pub(crate) fn ncclGroupEnd() -> c_int;
        pub(crate) fn ncclRedOpCreatePreMulSum(
            op: *mut c_int,
            scalar: *mut c_void,
            number: c_int,
            residence: c_int,
            comm: Comm,
        ) -> c_int;
        pub(crate) fn ncclRedOpDestroy(op: c_int, comm: Comm) -> c_int;
        pub(crate) fn ncclMemAlloc(address: *mut *mut c_void, bytes: usize) -> c_int;
        pub(crate) fn ncclMemFree(address: *mut c_void) -> c_int;
        pub(crate) fn ncclCommRegister(
            comm: Comm,
            buffer: *mut c_void,
            bytes: usize,
            handle: *mut *mut c_void,
        ) -> c_int;
        pub(crate) fn ncclCommDeregister(comm: Comm, handle: *mut c_void) -> c_int;
        pub(crate) fn ncclReduce(
            from: *mut c_void,
            to: *mut c_void,
            count: usize,
            number: c_int,
            op: c_int,
            root: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclBroadcast(
            from: *mut c_void,
            to: *mut c_void,
            count: usize,
            number: c_int,
            root: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclAllReduce(
            from: *mut c_void,
            to: *mut c_void,
            count: usize,
            number: c_int,
            op: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclReduceScatter(
            from: *mut c_void,
            to: *mut c_void,
            count: usize,
            number: c_int,
            op: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclAllGather(
            from: *mut c_void,
            to: *mut c_void,
            count: usize,
            number: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclSend(
            from: *mut c_void,
            count: usize,
            number: c_int,
            peer: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
        pub(crate) fn ncclRecv(
            to: *mut c_void,
            count: usize,
            number: c_int,
            peer: c_int,
            comm: Comm,
            stream: CUstream,
        ) -> c_int;
    }
}

/// Calls a function of NCCL and returns its code.
macro_rules! nccl {
    ($function:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: as for the driver's functions in `support`.
        #[allow(clippy::macro_metavars_in_unsafe, reason = "a test's shorthand")]
        unsafe { crate::nccl::symbol::$function($($arg),*) }
    }};
}

/// Calls a function of NCCL that must return success.
macro_rules! done {
    ($function:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(nccl!($function($($arg),*)), crate::nccl::SUCCESS, stringify!($function))
    };
}

/// Calls a function of NCCL that must return this code.
macro_rules! gives {
    ($code:expr, $function:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(nccl!($function($($arg),*)), $code, stringify!($function))
    };
}

/// Calls a function of NCCL that must return success, or be in progress and then succeed.
macro_rules! goes {
    ($comm:expr, $function:ident($($arg:expr),* $(,)?)) => {
        match nccl!($function($($arg),*)) {
            crate::nccl::SUCCESS => {}
            code => {
                assert_eq!(code, crate::nccl::IN_PROGRESS, stringify!($function));
                assert_eq!(crate::nccl::settled($comm), crate::nccl::SUCCESS);
            }
        }
    };
}

pub(crate) use {done, gives, goes, nccl};

pub(crate) fn unique() -> UniqueId {
    let mut id = UniqueId { internal: [0; 128] };
    done!(ncclGetUniqueId(&mut id));
    id
}

pub(crate) fn config(blocking: bool) -> Config {
    let blocking = c_int::from(blocking);
    Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 22803, blocking }
}

pub(crate) fn state_of(comm: Comm) -> c_int {
    let mut state = -1;
    done!(ncclCommGetAsyncError(comm, &mut state));
    state
}

/// Returns the state once no operation is in progress.
pub(crate) fn settled(comm: Comm) -> c_int {
    let states = (0..10).map(|_| state_of(comm));
    states.into_iter().find(|state| *state != IN_PROGRESS).expect("ends within ten polls")
}

/// A rank of a test: its device's context is current on its thread whenever it is used.
pub(crate) struct Rank {
    pub(crate) comm: Comm,
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
    /// Buffers of 64 bytes each.
    pub(crate) from: CUdeviceptr,
    pub(crate) to: CUdeviceptr,
}

// SAFETY: handles are numbers, which the simulator takes from any thread.
unsafe impl Sync for Rank {}

pub(crate) const ROOM: usize = 64;

impl Rank {
    pub(crate) fn fill(&self, bytes: &[u8]) {
        ok!(cuCtxSetCurrent(self.context));
        let pinned = Pinned::new(bytes);
        ok!(cuMemcpyHtoDAsync_v2(self.from, pinned.0, bytes.len(), self.stream));
        ok!(cuStreamSynchronize(self.stream));
    }

    pub(crate) fn wait(&self) {
        ok!(cuCtxSetCurrent(self.context));
        ok!(cuStreamSynchronize(self.stream));
    }

    /// Reads what is at `to` after all work of the stream.
    pub(crate) fn read(&self, bytes: usize) -> Vec<u8> {
        // Freeing `pinned` waits for all work of its context.
        ok!(cuCtxSetCurrent(self.context));
        let pinned = Pinned::new(&vec![0; bytes]);
        ok!(cuMemcpyDtoHAsync_v2(pinned.0, self.to, bytes, self.stream));
        ok!(cuStreamSynchronize(self.stream));
        pinned.read()
    }

    pub(crate) fn source(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.from as usize)
    }

    pub(crate) fn target(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.to as usize)
    }
}

/// Returns non-blocking ranks on the devices from 0 on that have joined and are connected.
pub(crate) fn ranks<const N: usize>() -> [Rank; N] {
    let ranks = joined();
    connect(&ranks);
    ranks
}

/// Connects ranks, by a group of all operations that connect them.
pub(crate) fn connect(ranks: &[Rank]) {
    done!(ncclGroupStart());
    for rank in ranks {
        let Rank { comm, stream, .. } = *rank;
        done!(ncclAllReduce(rank.source(), rank.target(), 1, U8, SUM, comm, stream));
        for peer in 0..ranks.len() {
            let (to, peer) = (rank.target().wrapping_byte_add(peer), peer as c_int);
            done!(ncclSend(rank.source(), 1, U8, peer, comm, stream));
            done!(ncclRecv(to, 1, U8, peer, comm, stream));
        }
    }
    goes!(ranks[0].comm, ncclGroupEnd());
    ranks.iter().for_each(Rank::wait);
}

/// Returns non-blocking ranks on the devices from 0 on that have joined.
pub(crate) fn joined<const N: usize>() -> [Rank; N] {
    let (id, mut next) = (unique(), 0);
    let ranks = [(); N].map(|()| {
        let context = bind(next);
        let (stream, from, to, mut comm) = (stream(), alloc(ROOM), alloc(ROOM), null_mut());
        let code = nccl!(ncclCommInitRankConfig(&mut comm, N as c_int, id, next, &config(false)));
        assert_eq!(code, IN_PROGRESS);
        next += 1;
        Rank { comm, context, stream, from, to }
    });
    for rank in &ranks {
        assert_eq!(settled(rank.comm), SUCCESS);
    }
    ranks
}

/// Waits for the ranks' work, then releases what they own.
pub(crate) fn release(session: &Session, ranks: impl IntoIterator<Item = Rank>) {
    for rank in ranks {
        rank.wait();
        done!(ncclCommDestroy(rank.comm));
        discard(&rank);
    }
    session.assert_clean();
}

/// Releases all that a rank owns except the communicator.
pub(crate) fn discard(rank: &Rank) {
    rank.wait();
    ok!(cuMemFree_v2(rank.from));
    ok!(cuMemFree_v2(rank.to));
    ok!(cuStreamDestroy_v2(rank.stream));
}

/// Enqueues a sum of `count` bytes over all ranks, in a group.
pub(crate) fn all_reduce(ranks: &[Rank], count: usize) {
    done!(ncclGroupStart());
    for rank in ranks {
        let (from, to) = (rank.source(), rank.target());
        done!(ncclAllReduce(from, to, count, U8, SUM, rank.comm, rank.stream));
    }
    goes!(ranks[0].comm, ncclGroupEnd());
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect()
}

pub(crate) fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}
