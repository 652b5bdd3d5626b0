//! Memory of every kind is allocated, and grows.

use cuda_core::{
    Allocator, CachingPool, Device, DeviceBuffer, Error, MemoryPool, PinnedBuffer, Registered,
    Rejected, Stream, managed::ManagedBuffer, pinned::RegisterFlags, pools::PoolLimit,
};
use proptest::prelude::*;

use super::MOST;
use crate::property::outcome::{Done, known, pattern, pick, take};
use crate::property::program::{On, len, on};
use crate::property::world::World;
use crate::property::world::memory::{Held, OfDevice, OfHost};

/// The source of an allocation.
#[derive(Debug, Clone, Copy)]
pub(in crate::property) enum Source {
    /// The stream, with the process's default allocator.
    Stream,
    Cache,
    /// One of the program's own caching pools.
    Private(u8),
    DriverPool,
    Plain,
    Context(u8),
    /// A driver pool that the program created.
    Pool,
    Managed(u8),
}

/// How the program creates a caching pool.
#[derive(Debug, Clone, Copy)]
pub(in crate::property) enum Making {
    Usual,
    OnDriverPool,
    /// With room for two segments.
    Limited,
}

#[derive(Debug, Clone)]
pub(in crate::property) enum MemoryOp {
    Alloc { stream: On, source: Source, len: u16, zeroed: bool },
    Pin { context: u8, len: u16 },
    Register { context: u8, len: u16, value: u8 },
    Resize { stream: u8, buffer: u8, len: u16 },
    Reserve { stream: u8, buffer: u8, additional: u16 },
    MakePool { pool: u8, making: Making },
    DropDriverPool { pool: u8, explicit: bool },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = MemoryOp> {
    let small = any::<u8>;
    prop_oneof![
        8 => (on(), source(), len(), any::<bool>()).prop_map(
            |(stream, source, len, zeroed)| MemoryOp::Alloc { stream, source, len, zeroed }
        ),
        3 => (small(), len()).prop_map(|(context, len)| MemoryOp::Pin { context, len }),
        2 => (small(), len(), small())
            .prop_map(|(context, len, value)| MemoryOp::Register { context, len, value }),
        1 => (small(), small(), len())
            .prop_map(|(stream, buffer, len)| MemoryOp::Resize { stream, buffer, len }),
        1 => (small(), small(), len()).prop_map(
            |(stream, buffer, additional)| MemoryOp::Reserve { stream, buffer, additional }
        ),
        1 => (small(), making()).prop_map(|(pool, making)| MemoryOp::MakePool { pool, making }),
        1 => (small(), any::<bool>())
            .prop_map(|(pool, explicit)| MemoryOp::DropDriverPool { pool, explicit }),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        3 => Just(Source::Stream),
        3 => Just(Source::Cache),
        3 => any::<u8>().prop_map(Source::Private),
        1 => Just(Source::DriverPool),
        1 => Just(Source::Plain),
        1 => any::<u8>().prop_map(Source::Context),
        1 => Just(Source::Pool),
        1 => any::<u8>().prop_map(Source::Managed),
    ]
}

fn making() -> impl Strategy<Value = Making> {
    prop_oneof![Just(Making::Usual), Just(Making::OnDriverPool), Just(Making::Limited)]
}

/// The size of two segments.
const LIMIT: usize = 4 << 20;

impl World {
    pub(super) fn memory(&mut self, op: MemoryOp) -> Done {
        match op {
            MemoryOp::Alloc { stream, source, len, zeroed } => {
                if self.device.len() < MOST {
                    self.alloc(stream, source, len.into(), zeroed)?;
                }
            }
            MemoryOp::Pin { context, len } => {
                if self.host.len() < MOST {
                    let len = usize::from(len);
                    let buffer = PinnedBuffer::zeroed(&self.context(context), len)?;
                    self.host.push(Held {
                        memory: OfHost::Pinned(buffer),
                        contents: vec![Some(0); len],
                    });
                }
            }
            MemoryOp::Register { context, len, value } => {
                if self.host.len() < MOST {
                    let bytes = pattern(len.into(), value);
                    let contents = known(&bytes);
                    let context = self.context(context);
                    match Registered::new(&context, bytes, RegisterFlags::PORTABLE) {
                        Ok(buffer) => {
                            self.host.push(Held { memory: OfHost::Registered(buffer), contents })
                        }
                        // The memory shares a page with other registered memory.
                        Err(Rejected { error, .. }) if is_registered(&error) => {}
                        Err(Rejected { error, .. }) => return Err(error.into()),
                    }
                }
            }
            MemoryOp::Resize { stream, buffer, len } => {
                self.grow(stream, buffer, |buffer, contents, stream| {
                    buffer.resize(stream, len.into())?;
                    contents.resize(len.into(), None);
                    Ok(())
                })?
            }
            MemoryOp::Reserve { stream, buffer, additional } => {
                self.grow(stream, buffer, |buffer, _, stream| {
                    buffer.reserve(stream, additional.into())
                })?
            }
            MemoryOp::MakePool { pool, making } => {
                let builder = CachingPool::builder();
                let made = match making {
                    Making::Usual => builder,
                    Making::OnDriverPool => builder.upstream(&Allocator::driver_pool()),
                    Making::Limited => builder.limit(PoolLimit::Bytes(LIMIT)),
                };
                let index = usize::from(pool) % self.caches.len();
                self.caches[index] = made.build()?;
            }
            MemoryOp::DropDriverPool { pool, explicit } => match take(&mut self.pools, pool) {
                Some(pool) if explicit => pool.close()?,
                other => drop(other),
            },
        }
        Ok(())
    }

    fn alloc(&mut self, on: On, source: Source, len: usize, zeroed: bool) -> Done {
        let home = match on {
            On::Created(index) | On::PerThread(index) => self.created(index)?,
            On::Legacy(index) => self.context(index).default_stream()?,
        };
        let made = match source {
            Source::Stream => home.alloc(len).map(OfDevice::Plain),
            Source::Cache => home.alloc_with(&Allocator::cache(), len).map(OfDevice::Plain),
            Source::Private(pool) => {
                let pool = self.caches[usize::from(pool) % self.caches.len()].allocator();
                home.alloc_with(&pool, len).map(OfDevice::Plain)
            }
            Source::DriverPool => {
                home.alloc_with(&Allocator::driver_pool(), len).map(OfDevice::Plain)
            }
            Source::Plain => home.alloc_with(&Allocator::plain(), len).map(OfDevice::Plain),
            Source::Context(context) => self.context(context).alloc(len).map(OfDevice::Plain),
            Source::Pool => {
                let pool = self.pool_of(home.device())?;
                home.alloc_from(&pool, len).map(OfDevice::Plain)
            }
            Source::Managed(context) => {
                ManagedBuffer::new(&self.context(context), len).map(OfDevice::Managed)
            }
        };
        let memory = match made {
            // All of the pool is in use: the limit is deliberately small.
            Err(Error::PoolExhausted(_)) => return Ok(()),
            other => other?,
        };
        let mut held = Held { memory, contents: vec![None; len] };
        let mut filled = Ok(());
        if zeroed {
            let stream = match source {
                Source::Context(context) => self.context(context).create_stream()?,
                _ => home,
            };
            filled = stream.fill(held.memory.view_mut(), 0);
            if filled.is_ok() {
                held.contents.fill(Some(0));
            }
        }
        self.device.push(held);
        Ok(filled?)
    }

    /// Returns the program's pool on the device.
    fn pool_of(&mut self, device: Device) -> cuda_core::Result<MemoryPool> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.device() == device) {
            return Ok(pool.clone());
        }
        let pool = MemoryPool::builder(device).build()?;
        self.pools.push(pool.clone());
        Ok(pool)
    }

    /// Runs `f` with a buffer that may move, on a stream of its device. An error leaves the buffer
    /// unchanged.
    fn grow(
        &mut self,
        stream: u8,
        buffer: u8,
        f: impl FnOnce(&mut DeviceBuffer<u8>, &mut Vec<Option<u8>>, &Stream) -> cuda_core::Result<()>,
    ) -> Done {
        let stream = self.created(stream)?;
        let Some(held) = pick(&mut self.device, buffer) else {
            return Ok(());
        };
        let OfDevice::Plain(buffer) = &mut held.memory else {
            return Ok(());
        };
        if buffer.device() != stream.device() {
            return Ok(());
        }
        Ok(f(buffer, &mut held.contents, &stream)?)
    }
}

fn is_registered(error: &Error) -> bool {
    error.code() == Some(cuda_core::sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
}
