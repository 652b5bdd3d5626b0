//! The simulated driver's own tests: through `cuda_sys`, as any program would use it.

mod support;

mod beside_capture;
mod callbacks;
mod capture;
mod contexts;
mod devices;
mod faults;
mod images;
mod kinds;
mod mapped;
mod memory;
mod order;
mod pools;
mod streams;
mod threaded;
mod values;
