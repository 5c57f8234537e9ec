//! Runs the kernel sources on the CPU: CUDA threads as coroutines.
