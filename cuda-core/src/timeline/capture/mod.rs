//! Captures of streams by other code: this crate neither takes part in them nor ends them.
//!
//! # Streams
//! Work that is enqueued on a stream that is being captured does not run: it becomes part of a
//! graph. An event that is recorded there never happens, a stream that waits for such an event
//! takes part in the capture from then on, and querying or waiting for the stream, or for the
//! event, ends the capture with an error. So before this crate does anything on a stream that other
//! code can capture, it asks the driver whether the stream is being captured, and returns
//! [`Error::Capturing`](crate::Error::Capturing) if it is: [`refuse_captured`]. Asking disturbs no
//! capture.
//!
//! [`Exposure`] knows whether other code can capture a stream: for a stream that this crate
//! created, and whose handle it has not given out, the driver is not asked. This crate's own graphs
//! can rely on that, too: a private stream that they capture joins no other capture, and no other
//! code enqueues on it.
//!
//! A late record, by which one stream is ordered behind another, asks both before and after:
//! another thread may begin the capture in between. An event that was recorded into it is not
//! listed as recorded, so nothing waits for it.
//!
//! Memory that such a stream used last is neither freed nor reused meanwhile. A caching pool treats
//! it as busy; a release that needs the driver [is kept](crate::process::held) and tried
//! again with later drops.
//!
//! # Threads
//! CUDA calls some functions *potentially unsafe*: called on a thread that captures, or on any
//! thread while another captures in global mode, the default, they fail and end that capture,
//! though they have nothing to do with it; unless the thread's mode is relaxed
//! (`cuThreadExchangeStreamCaptureMode`). What this crate waits for and allocates does not concern
//! other code's capture. So the rule is:
//!
//! * Every call that **waits or asks** whether work is done, **allocates or frees**, **maps,
//!   imports or registers** and the reverse, **loads or unloads**, creates or destroys **arrays,
//!   textures and surfaces**, reads or sets what a **pool** does, or sets a context's **limits**,
//!   is made under [`RelaxedCaptureMode`], also by explicit methods. (An H200 with driver 580 ended
//!   captures at synchronising and querying streams and events, memory of every kind, pools and
//!   their attributes, registering, arrays, textures, unloading modules and libraries,
//!   `cuCtxSetLimit`, `cuCtxSetCacheConfig`.)
//! * A call that **enqueues** on a stream, **creates or destroys** streams, events and contexts,
//!   **records**, makes a context current or reads other attributes, is not potentially unsafe, and
//!   is made without. (The same H200 let all of these pass beside captures of every mode.)
//! * `cuStreamGetFlags` and `cuStreamGetId` of a stream that is being captured end its capture,
//!   whatever the mode, so this crate asks first; `cuStreamGetPriority` and `cuStreamGetCtx` do
//!   not.
//! * `cuCtxSynchronize` ends every capture of a stream of its context, whatever the mode. It is
//!   called when none of the streams that this crate knows of is being captured, and under
//!   [`RelaxedCaptureMode`].
//! * This crate's own threads are relaxed [for as long as they
//!   live](crate::process::capture_mode::RelaxedCaptureMode::for_life).
//!
//! [`RelaxedCaptureMode`]: crate::process::capture_mode::RelaxedCaptureMode

mod exposure;

pub(crate) use exposure::{Exposure, refuse_captured};
