//! The suite that runs on real GPUs and on the simulated driver alike, one module a chapter of the
//! behaviours: `cargo xtask test-gpu`, and in the simulator `cargo xtask test`.

mod adaptors;
mod allocators;
mod arrays;
mod asynchronous;
mod batches;
mod cache;
mod capture;
mod contexts;
mod copies;
mod current;
mod devices;
mod driver_pools;
mod errors;
mod events;
mod fatbins;
mod foreign_streams;
mod forms;
#[cfg(cuda_12_4)]
mod green;
mod guard_closures;
mod guards;
mod harness;
mod launch_order;
mod launches;
#[cfg(cuda_12_0)]
mod libraries;
mod linker;
mod locals;
mod managed;
mod many;
mod memory;
mod modules;
mod nvrtc;
mod peers;
mod pinned;
mod pinned_cache;
mod pitched;
mod plain;
mod pointers;
mod readme;
mod registered;
mod resize;
mod runtime;
#[cfg(unix)]
mod shared_memory;
mod soundness;
mod stack;
mod staged;
mod staged_large;
mod stream_pool;
mod streams;
mod textures;
mod threads;
mod values;
mod virtual_memory;
mod waiters;
