//! Loads and dispatches embedded CUDA kernels through the driver alone.
