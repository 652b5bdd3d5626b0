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
mod pools;
mod queues;
mod sessions;
mod streams;
mod threaded;
mod values;
