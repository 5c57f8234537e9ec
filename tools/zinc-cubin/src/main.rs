//! `zinc-cubin`: lists, shows, runs and verifies the CUDA kernels that this binary carries.

mod cli;
mod failure;
mod output;

fn main() {}
