//! The archive of compiled kernels and the reader of cubin ELF files.
