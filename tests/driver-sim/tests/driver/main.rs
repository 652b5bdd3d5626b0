//! The simulated driver's own tests, through `cuda_sys`, like any other program.

mod support;

mod beside_capture;
mod callbacks;
mod capture;
mod contexts;
mod devices;
mod faults;
mod graphs;
mod images;
mod kernels;
mod kinds;
mod mapped;
mod memory;
mod nccl;
mod order;
mod parts;
mod pools;
mod queues;
mod sessions;
mod settings;
mod streams;
mod threaded;
mod values;

// The parts name these by their paths in the library.
use parts::{handle, table};
