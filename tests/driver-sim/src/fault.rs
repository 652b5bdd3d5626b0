//! Faults: the N-th call of a function returns a code, with or without its effect.

use std::time::Duration;

use cuda_sys::CUresult;

use crate::thread;

/// A call that is made to fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    function: Option<String>,
    nth: u64,
    seen: u64,
    code: CUresult,
    repeat: Repeat,
    instead: Instead,
    thread: Option<u64>,
    ends_waits: Option<Duration>,
    pub(crate) fired: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    FromThenOn,
    Sticky,
}

/// The effect of a call before it returns the fault's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    /// No effect.
    Nothing,
    /// The call's normal effect.
    AllTheSame,
}

/// A fault that applies to a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) code: CUresult,
    pub(crate) instead: Instead,
    /// Whether every later call of the context returns the code too.
    pub(crate) loses_context: bool,
    /// After this time streams no longer wait for values in memory.
    pub(crate) ends_waits: Option<Duration>,
}

impl Fault {
    /// Makes the next call of any function return `code`, once, without effect. With `CUDA_SUCCESS`, the call
    /// claims an effect that it did not have.
    ///
    /// A function of NCCL returns the `ncclResult_t` of that number, from 0 to 8, and
    /// `ncclUnhandledCudaError` for any other code.
    #[must_use]
    pub fn new(code: CUresult) -> Self {
        Self {
            function: None,
            nth: 1,
            seen: 0,
            code,
            repeat: Repeat::Once,
            instead: Instead::Nothing,
            thread: None,
            ends_waits: None,
            fired: 0,
        }
    }

    /// Restricts the fault to calls of this function.
    #[must_use]
    pub fn function(mut self, name: &str) -> Self {
        self.function = Some(name.to_owned());
        self
    }

    /// Makes the N-th matching call fail, counted from 1.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    /// Makes every matching call from the N-th on fail.
    #[must_use]
    pub fn from_then_on(mut self) -> Self {
        self.repeat = Repeat::FromThenOn;
        self
    }

    /// Makes every call of the same context return the code once the fault has fired: the context is lost.
    #[must_use]
    pub fn sticky(mut self) -> Self {
        self.repeat = Repeat::Sticky;
        self
    }

    /// Makes the call have its normal effect and return the code nevertheless: an enqueue whose work runs, a
    /// creation whose object exists, a free that releases the memory.
    ///
    /// CUDA lets most calls return the error of earlier, asynchronous work, and does not document whether
    /// such calls themselves take effect.
    #[must_use]
    pub fn takes_effect(mut self) -> Self {
        self.instead = Instead::AllTheSame;
        self
    }

    /// Restricts the fault to calls of the calling thread.
    #[must_use]
    pub fn on_this_thread(mut self) -> Self {
        self.thread = Some(thread::number());
        self
    }

    /// Sets a time after which, once the fault has fired, streams that wait for a value in memory continue
    /// without it, until the session ends: for a program that the fault ends early, so that no code may be
    /// left to write the value.
    #[must_use]
    pub fn ends_waits_after(mut self, time: Duration) -> Self {
        self.ends_waits = Some(time);
        self
    }

    /// Counts one call; returns the hit if the fault fires.
    pub(crate) fn observe(&mut self, function: &str, thread: u64) -> Option<Hit> {
        let matches = self.function.as_deref().is_none_or(|name| name == function)
            && self.thread.is_none_or(|only| only == thread);
        if !matches {
            return None;
        }
        self.seen += 1;
        let hit = match self.repeat {
            Repeat::FromThenOn => self.seen >= self.nth,
            Repeat::Once | Repeat::Sticky => self.seen == self.nth,
        };
        if !hit {
            return None;
        }
        self.fired += 1;
        Some(Hit {
            code: self.code,
            instead: self.instead,
            loses_context: self.repeat == Repeat::Sticky,
            ends_waits: self.ends_waits,
        })
    }
}
