//! Captures of streams that other code makes: this crate neither takes part in them nor ends them.
//!
//! # Streams
//! What is enqueued on a stream that is being captured does not run: it becomes part of a graph. An
//! event that is recorded there stands for nothing that ever happens, a stream that waits for such an
//! event takes part in the capture from then on, and to ask or wait for the stream, or for the event,
//! ends the capture with an error. So before anything is done on a stream that other code can capture,
//! the driver is asked whether it is being captured, and [`Error::Capturing`](crate::Error::Capturing)
//! is the answer where it is: [`refuse_captured`]. The question disturbs no capture.
//!
//! Who can capture a stream is what [`Exposure`] knows: a stream that this crate made, and whose handle
//! it has given to nobody, is not asked about. That is also what graphs of this crate's own can rest on:
//! a private stream that they capture joins no other capture, and no other code enqueues on it.
//!
//! A late record, by which one stream is ordered behind another, asks before and after it: the capture
//! may begin in between, on another thread. An event that was recorded into it is not listed as
//! recorded, so nothing waits for it.
//!
//! Memory that such a stream used last is neither freed nor used again meanwhile. A caching pool has it
//! for busy; what has to be given back to the driver [is kept](crate::process::held) and tried again with later drops.
//!
//! # Threads
//! CUDA calls some calls *potentially unsafe*: made on a thread that captures, or on any thread while
//! another captures in global mode, the default, they fail and end that capture, though they have
//! nothing to do with it; unless the thread's mode is relaxed (`cuThreadExchangeStreamCaptureMode`).
//! What this crate waits for and allocates is no business of other code's capture. So the rule is:
//!
//! * Whatever **waits or asks** whether work is done, **allocates or frees**, **maps, imports or
//!   registers** and the reverse, **loads or unloads**, makes or destroys **arrays, textures and
//!   surfaces**, reads or sets what a **pool** does, sets a context's **limits**, is called under
//!   [`Relaxed`], also by explicit methods. (An H200 with driver 580 ended captures at synchronising and
//!   querying streams and events, memory of every kind, pools and their attributes, registering, arrays,
//!   textures, unloading modules and libraries, `cuCtxSetLimit`, `cuCtxSetCacheConfig`.)
//! * What **enqueues** on a stream, **makes or destroys** streams, events and contexts, **records**,
//!   makes current or reads other attributes, is not potentially unsafe, and is called as it is. (The
//!   same H200 let all of these pass beside captures of every mode.)
//! * `cuStreamGetFlags` and `cuStreamGetId` of a stream that is being captured end its capture, whatever
//!   the mode, so they come behind the question; `cuStreamGetPriority` and `cuStreamGetCtx` do not.
//! * `cuCtxSynchronize` ends every capture of a stream of its context, whatever the mode. It is called
//!   when none of the streams that this crate knows of is being captured, and under [`Relaxed`].
//! * Threads of this crate's own are relaxed [for as long as they live](crate::process::capture_mode::Relaxed::for_life).
//!
//! [`Relaxed`]: crate::process::capture_mode::Relaxed

mod exposure;

pub(crate) use exposure::{Exposure, refuse_captured};
