//! Compiles the kernels with nvcc: toolkit lookup, cache, checks and the archive.
