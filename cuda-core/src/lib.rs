//! Safe CUDA.
