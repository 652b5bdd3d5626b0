//! How ranks join: by ids that all of them know, or by the id of a communicator that grows.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::failure::check;
use super::joined::Joined;
use super::library::{Nccl, missing, nccl};
use super::options::CommunicatorOptions;
use super::polling::NcclScope;
use super::raw::{IN_PROGRESS, RawConfig, SUCCESS};
use super::unique_id::UniqueId;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::within;

/// NCCL's functions for [`Communicator::init_rank`](super::Communicator::init_rank) and
/// [`Communicator::grow`](super::Communicator::grow), as errors name them.
pub(super) const INIT_RANK: &str = "ncclCommInitRankConfig";
pub(super) const GROW: &str = "ncclCommGrow";

/// How a rank finds the others.
#[derive(Clone, Copy)]
pub(super) enum JoinBy<'a> {
    Ids(&'a [UniqueId]),
    /// By the id of a communicator that grows. NCCL may write the handle until the rank is known to
    /// have joined or failed.
    Growth(UniqueId, &'a AtomicPtr<c_void>),
}

impl JoinBy<'_> {
    /// Returns the function of NCCL, as errors name it.
    pub(super) fn op(self) -> &'static str {
        match self {
            Self::Ids([] | [_]) => INIT_RANK,
            Self::Ids(_) => "ncclCommInitRankScalable",
            Self::Growth(..) => GROW,
        }
    }
}

impl Joined {
    /// Refuses a context that NCCL cannot work in.
    pub(super) fn require_primary(context: &Context) -> Result<()> {
        let reason = "NCCL works in the primary context of a device; another was given";
        Error::unless(context.is_primary(), INIT_RANK, reason)
    }

    /// Begins to join; the joining is in progress afterwards. Adds the rank to `begun`, even a rank
    /// made by a call that failed: the caller drops it after the group that this may be called in,
    /// since it must not be freed inside the group.
    pub(super) fn begin(
        context: &Context,
        how: JoinBy<'_>,
        (rank, size): (usize, usize),
        options: &CommunicatorOptions,
        begun: &mut Vec<Self>,
    ) -> Result<()> {
        let (op, nccl) = (how.op(), nccl()?);
        Self::require_primary(context)?;
        let numbers = c_int::try_from(rank).ok().zip(c_int::try_from(size).ok());
        let (number, count) = numbers.ok_or(Error::SizeOverflow { len: size, element_size: 1 })?;
        within(op, "rank", rank, size)?;
        if let JoinBy::Ids(ids) = how {
            let why = "ranks join by at least one id, and by at most as many as there are ranks";
            Error::unless((1..=size).contains(&ids.len()), op, why)?;
        }
        let (mut raw, mut config) = (ptr::null_mut(), options.config(op)?);
        // Made before NCCL gives itself access to the memory of peers.
        let mut joined = Self::new(nccl, context, (rank, size), *options, raw);
        let scope = NcclScope::relaxed(context)?;
        let code = match how {
            JoinBy::Ids([id]) => {
                // SAFETY: the context is current. The call reads the configuration and writes one
                // handle, to locals that outlive it; what it leaves in progress uses neither.
                unsafe { (nccl.init_rank)(&mut raw, count, id.raw(), number, &mut config) }
            }
            JoinBy::Ids(ids) => {
                let init = nccl.init_rank_scalable.ok_or_else(|| missing(op))?;
                let mut ids: Vec<_> = ids.iter().map(|id| id.raw()).collect();
                // Fits: there are no more ids than ranks.
                let given = ids.len() as c_int;
                // SAFETY: as above; the call copies the ids, `given` in number.
                unsafe { init(&mut raw, count, number, given, ids.as_mut_ptr(), &mut config) }
            }
            JoinBy::Growth(id, place) => {
                let grow = nccl.grow.ok_or_else(|| missing(op))?;
                let (none, id, at) = (ptr::null_mut(), id.raw(), place.as_ptr());
                // SAFETY: as above, but the handle is written to the caller's place, and again when
                // the call is no longer in progress.
                let code = unsafe { grow(none, count, &id, number, at, &mut config) };
                raw = place.load(Ordering::Acquire);
                // It may return success while in progress, as `ncclCommSplit` of NCCL 2.28 does.
                if code == SUCCESS { IN_PROGRESS } else { code }
            }
        };
        drop(scope);
        // NCCL has read its configuration file by now.
        joined.blocks = options.will_block();
        joined.set_raw(raw);
        begun.push(joined);
        match code {
            IN_PROGRESS => Ok(()),
            code => check(op, nccl, code, (raw, Some(rank))),
        }
    }

    /// Calls [`Joined::begin`] for the ranks of all these contexts, in an open group.
    pub(super) fn begin_all(
        contexts: &[&Context],
        id: &UniqueId,
        options: &CommunicatorOptions,
        begun: &mut Vec<Self>,
    ) -> Result<()> {
        let all = contexts.iter().enumerate().try_for_each(|(rank, context)| {
            let how = JoinBy::Ids(slice::from_ref(id));
            Self::begin(context, how, (rank, contexts.len()), options, begun)
        });
        // After an error of NCCL, the open group fails by itself.
        let unknown = all.as_ref().is_err_and(|error| !matches!(error, Error::Nccl(_)));
        if unknown {
            fail_group(nccl()?, id);
        }
        all
    }
}

/// Makes the open group fail. Otherwise, if calls block, its end would wait for the ranks that have
/// not begun to join.
#[cold]
fn fail_group(nccl: &Nccl, id: &UniqueId) {
    let (mut raw, mut config) = (ptr::null_mut(), RawConfig::DEFAULT);
    config.blocking = 0;
    // SAFETY: the call reads the configuration, and may write one handle, to locals that outlive
    // it. It makes nothing, since a communicator has at least one rank.
    let refused = unsafe { (nccl.init_rank)(&mut raw, 0, id.raw(), 0, &mut config) };
    debug_assert_ne!(refused, SUCCESS, "NCCL refuses it, and so the group");
}
