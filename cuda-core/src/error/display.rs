//! `Display`, `Debug` and conversions of errors.

use std::fmt;

use cuda_sys::{CUgraphExecUpdateResult, CUresult, LoadError};

use super::payload::*;
use super::text::{counted, describe, on_lines_of_its_own, shortage, visible_devices, within};
use super::{AllocatorError, ByteCount, Error, LaunchError, ModuleError, NcclError, Rejected};
use crate::util::from;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { op, code } => {
                write!(f, "{op}: {}", describe(*code))?;
                if self.is_sticky() && *code != cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED {
                    f.write_str(
                        "; earlier work has failed: only a new process can use the device",
                    )?;
                }
                match *code {
                    // Exceptions raised by a kernel.
                    CUresult(700 | 710 | 714..=719) => f.write_str(
                        "; with CUDA_LAUNCH_BLOCKING=1 the launch of the kernel itself returns the \
                         error, and compute-sanitizer names the instruction",
                    ),
                    cuda_sys::CUDA_ERROR_NO_DEVICE => visible_devices(f),
                    cuda_sys::CUDA_ERROR_NOT_READY if *op == ELAPSED => {
                        f.write_str("; call `synchronize` on the later event first")
                    }
                    _ => Ok(()),
                }
            }
            Self::Invalid(it) => write!(f, "{}: {}", it.op, it.reason),
            Self::OutOfHostMemory(it) => {
                let asked = ByteCount(it.requested);
                write!(f, "{}: the host is out of memory (requested {asked})", it.op)
            }
            Self::OutOfMemory(it) => {
                let OutOfMemory { op, requested, device, memory } = &**it;
                let (asked, left) = (ByteCount(*requested), shortage(memory, *device));
                write!(f, "{op}: out of memory (requested {asked}{left})")?;
                if memory.is_none_or(|left| left.free < *requested) {
                    return Ok(());
                }
                f.write_str(match *op {
                    // The program may have limited the pool's size.
                    "cuMemAllocFromPoolAsync" => {
                        ": the pool may have reached its `max_size`, or the free memory be fragmented"
                    }
                    _ => ": the free memory may be fragmented, or taken by another allocation since",
                })
            }
            Self::PoolExhausted(it) => {
                let PoolExhausted { requested, device, usage, memory } = &**it;
                write!(f, "the caching pool cannot serve {}", ByteCount(*requested))?;
                // If the device has enough free memory, the pool's limit is what is short.
                let left = memory.filter(|left| left.free >= *requested).zip(usage.limit);
                match left {
                    Some((_, limit)) => write!(f, " within its limit of {}", ByteCount(limit))?,
                    None => f.write_str(&shortage(memory, *device))?,
                }
                write!(
                    f,
                    " ({} in use, {} free, {} pending, largest free block {}{})",
                    ByteCount(usage.used),
                    ByteCount(usage.free),
                    ByteCount(usage.pending),
                    ByteCount(usage.largest_free),
                    within(usage.limit.filter(|_| left.is_none()))
                )?;
                left.map_or(Ok(()), |(memory, _)| {
                    write!(f, "; device {device} has {} free", ByteCount(memory.free))
                })
            }
            Self::NoDriver(inner) => inner.fmt(f),
            Self::DriverTooOld { found } => {
                write!(f, "the driver supports CUDA {found}; 11.8 is the oldest that works")
            }
            Self::NoSuchDevice { ordinal, count } => {
                write!(f, "device {ordinal} does not exist: there are {count}")?;
                visible_devices(f)
            }
            Self::NoSuchUuid { uuid, count } => {
                write!(f, "none of the {count} devices of this process is {uuid}")
            }
            Self::Unsupported { feature, device } => {
                write!(f, "device {device} does not support {feature}")
            }
            Self::PeerAccessInUse(it) => {
                let PeerAccessInUse { device, peer, reason } = &**it;
                write!(f, "access of device {device} to device {peer} cannot be revoked: {reason}")
            }
            Self::LengthMismatch(it) => {
                let source = counted(it.source_len, "element", "elements");
                let destination = it.destination_len;
                write!(f, "{}: the source holds {source}, the destination {destination}", it.op)
            }
            Self::OutOfBounds(it) => {
                let OutOfBounds { start, end, len } = &**it;
                match start > end {
                    true => write!(f, "range {start}..{end} ends before it begins"),
                    false => {
                        write!(f, "range {start}..{end} is out of bounds of a length of {len}")
                    }
                }
            }
            Self::SizeOverflow { len, element_size } => write!(
                f,
                "{len} elements of {element_size} bytes are more than an address space \
                 holds"
            ),
            Self::Allocator(inner) => inner.fmt(f),
            Self::OnDevice { device, error } => write!(f, "device {device}: {error}"),
            Self::WrongDevice(it) => {
                let WrongDevice { op, what, memory, stream } = &**it;
                write!(f, "{op}: {what} is on device {memory}, the stream on device {stream}; ")?;
                if op.starts_with("nccl") {
                    return f.write_str("each rank, the root too, takes memory of its own device");
                }
                write!(f, "use a stream of device {memory}")?;
                match *op {
                    LAUNCH => f.write_str(
                        ", or for buffers `Context::enable_peer_access`, for virtual ones \
                         `VirtualBuffer::set_access`",
                    ),
                    _ => Ok(()),
                }
            }
            Self::ContextInUse => f.write_str(
                "the context is still in use: by clones, streams, buffers, events or guards (drop them \
                 first), or by work that is not known to be done",
            ),
            Self::GivenUp { what } => {
                write!(f, "{what} was given up: whether the driver has released it is unknown; make another")
            }
            Self::Capturing { op: op @ "cuCtxSynchronize" } => {
                write!(f, "{op}: a stream of the context is being captured, ")?;
                f.write_str("which this would end, or has ended if it began meanwhile")
            }
            Self::Capturing { op } => write!(
                f,
                "{op}: the stream is being captured by other code, and is left alone until that ends"
            ),
            Self::NotCapturable { op } => write!(f, "{op}: {}", not_in_graphs(op)),
            Self::GraphUpdate(it) => {
                let GraphUpdate { why, node, dependency, operation } = &**it;
                write!(
                    f,
                    "cuGraphExecUpdate: the executable is unchanged, since {}",
                    differs(*why)
                )?;
                if let Some(node) = node {
                    write!(f, ": node {node}")?;
                }
                if let Some(operation) = operation {
                    write!(f, " ({operation})")?;
                }
                match dependency {
                    Some(dependency) => write!(f, " comes after node {dependency}"),
                    None => Ok(()),
                }
            }
            Self::Module(inner) => inner.fmt(f),
            Self::Nvrtc(it) => {
                write!(f, "{}: {}{}", it.op, it.reason, on_lines_of_its_own(&it.log))
            }
            Self::NoNvrtc { tried } => write!(
                f,
                "NVRTC could not be loaded:{tried}. Install the CUDA toolkit, or its NVRTC package; \
                 CUDA_CORE_NVRTC names another library to load"
            ),
            Self::Nccl(inner) => inner.fmt(f),
            Self::Launch(inner) => inner.fmt(f),
            Self::WrongContext(it) => {
                let WrongContext { op, what } = &**it;
                let instead = match *op {
                    LAUNCH => {
                        "load or allocate it in the stream's context; the kernels of a `Library` \
                         belong to all"
                    }
                    "Communicator::on" => {
                        "each rank takes a stream of its own context, in the order of the contexts"
                    }
                    "Allocator::from_functions" => "its memory is that of the primary context",
                    _ => "make it in the stream's context, or use a stream of its own",
                };
                write!(f, "{op}: {what} belongs to another context than the stream; {instead}")
            }
            Self::UnknownContext => f.write_str(
                "the current context was created elsewhere; name its owner with \
                 `Context::from_raw` first",
            ),
            Self::ContextStack => {
                f.write_str(
                    "the thread's context stack holds entries that a guard cannot remove; \
                     pop what was pushed after the guard was made",
                )
            }
            Self::LostStream => {
                f.write_str("a stream was lost before its work could be proven complete")
            }
            Self::NoThread(inner) => {
                write!(f, "no thread could be started to wait for the device: {inner}")
            }
            Self::InCallback => {
                f.write_str("CUDA cannot be called from a host function that a stream runs")
            }
            Self::Other(Other(inner)) => inner.fmt(f),
            Self::Forked => f.write_str(
                "CUDA was initialised before this process was forked; the child cannot \
                 use it",
            ),
            Self::Exiting => f.write_str("the process is exiting; the driver is shutting down"),
        }
    }
}

/// Implements `From` of a variant's payload for [`Error`].
macro_rules! from_payload {
    ($($variant:ident of $payload:ty),* $(,)?) => {
        from! { $([] $payload => Error: |payload| Self::$variant(Box::new(payload));)* }
    };
}

from_payload! {
    NoDriver of LoadError, Allocator of AllocatorError, Module of ModuleError, Nccl of NcclError,
    Launch of LaunchError, Invalid of Invalid, OutOfHostMemory of OutOfHostMemory,
    OutOfMemory of OutOfMemory, PoolExhausted of PoolExhausted,
    PeerAccessInUse of PeerAccessInUse, LengthMismatch of LengthMismatch,
    OutOfBounds of OutOfBounds, WrongDevice of WrongDevice, GraphUpdate of GraphUpdate,
    Nvrtc of Nvrtc, WrongContext of WrongContext,
}

from! {
    [X] Rejected<X> => Error: |rejected| rejected.error;
}

/// Implements `Debug` of an error: the variant's name, and the sentence of `Display`. That sentence
/// includes that of an inner error, so `source` does not return the inner error: a report of the chain
/// would repeat it.
macro_rules! debug_by_variant {
    ($error:ident: $($variant:ident),*) => {
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let variant = match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                };
                f.debug_tuple(variant).field(&format_args!("{self}")).finish()
            }
        }
    };
}

/// The driver call of a launch, as errors name it.
pub(crate) const LAUNCH: &str = "cuLaunchKernelEx";

/// The method that creates a group of streams.
pub(crate) const FROM_STREAMS: &str = "DeviceGroup::from_streams";

/// The driver call that returns the time between two events.
pub(crate) const ELAPSED: &str = "cuEventElapsedTime";

/// A wait, outside of captures, for an event that was last recorded in a capture.
pub(crate) const WAIT_EVENT: &str = "Stream::wait_event";

/// The error text for operations that a graph can hold, but not the body of a condition.
const BODY: &str = "the body of a condition cannot have this; the graph around it can";

/// Returns why a capture refuses a driver call, and what to do instead.
fn not_in_graphs(op: &str) -> String {
    let instead = match op {
        ELAPSED | "cuEventQuery" | "cuEventSynchronize" => {
            return "the event was last recorded in a capture, and marks a point of that only; \
                    `record_each` makes each launch of the graph record it"
                .into();
        }
        WAIT_EVENT => {
            return "the event was last recorded in a capture, and only that capture's streams can wait \
                    for it; for several streams in one graph, give `Graph::capture` several contexts, and \
                    `record_each` makes each launch record the event"
                .into();
        }
        "cuStreamWaitEvent" => {
            return "a stream of a capture waits for events of that capture alone, and other streams \
                    wait for none of them; for several streams in one graph, give `Graph::capture` several \
                    contexts, and outside of conditions `wait_event_each` makes each launch wait"
                .into();
        }
        "as_slice" | "as_mut_slice" | "try_as_slice" | "ready" => {
            return "what uses the memory is being captured, and runs when the graph is launched, or is a call \
                    of NCCL that was aborted and may go on: access the memory after that"
                .into();
        }
        "cuMemcpyHtoDAsync" | "cuMemcpyDtoHAsync" | "cuMemcpy3DAsync" => {
            "; for slices, and memory that a copy owns, use a `PinnedBuffer` or `Registered` memory, \
             and lend it at each launch"
        }
        "cuStreamWriteValue32"
        | "cuStreamWriteValue64"
        | "cuStreamWaitValue32"
        | "cuStreamWaitValue64"
        | "cuEventRecordWithFlags"
        | "cuGraphAddChildGraphNode" => return BODY.into(),
        "cuSignalExternalSemaphoresAsync" | "cuWaitExternalSemaphoresAsync" => {
            "; signal it, or wait for it, on the stream of the launch"
        }
        "cuLaunchHostFunc" => "; outside of conditions, `launch_host_func_each` can",
        "cuStreamSynchronize" | "cuStreamQuery" | "cuEventRecord" => "; wait after the launch",
        "cuGraphLaunch" => "; `Graph::include` makes a graph part of another",
        "ncclGroupEnd" | FROM_STREAMS => {
            "; the streams of a group are of one capture, as those that `Graph::capture` makes of several \
             contexts, or of none"
        }
        "cuMemAllocAsync" => "; outside of conditions, `alloc_in_graph` can",
        op if op.starts_with("nccl") => return BODY.into(),
        _ => "",
    };
    format!("the stream is being captured, or was, and this cannot be part of a graph{instead}")
}

/// Returns what makes the update of an executable graph impossible.
fn differs(why: CUgraphExecUpdateResult) -> &'static str {
    match why {
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED => {
            "the operations differ in number or dependencies"
        }
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED => "the kinds of operations differ",
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED
        | cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE => "a kernel differs",
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED => {
            "the parameters of an operation differ in a way that cannot be updated"
        }
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED => {
            "the attributes of a node differ"
        }
        cuda_sys::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => "an operation cannot be updated",
        _ => "the driver refuses it without a reason",
    }
}

debug_by_variant! {
    Error: Driver, Invalid, OutOfHostMemory, OutOfMemory, PoolExhausted, NoDriver, DriverTooOld,
    NoSuchDevice, NoSuchUuid, Unsupported, PeerAccessInUse, LengthMismatch, OutOfBounds,
    SizeOverflow, Allocator, OnDevice, WrongDevice, ContextInUse, GivenUp, Capturing,
    NotCapturable, GraphUpdate, Module, Nvrtc, NoNvrtc, Nccl, Launch, WrongContext,
    UnknownContext, ContextStack, LostStream, NoThread, InCallback, Other, Forked, Exiting
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Other(Other(inner)) => inner.source(),
            Self::OnDevice { error, .. } => error.source(),
            _ => None,
        }
    }
}

impl std::error::Error for AllocatorError {}
impl std::error::Error for LaunchError {}
impl std::error::Error for ModuleError {}
impl std::error::Error for NcclError {}

debug_by_variant! { AllocatorError: Failed, Null, LimitExceeded }
debug_by_variant! { LaunchError: Limit, ArgumentCount, ArgumentSize, Refused }
debug_by_variant! { ModuleError: Compile, File, NotFound }
debug_by_variant! { NcclError: Failed, TimedOut, Aborted, Finalized, NotFound, TooOld, Missing }
