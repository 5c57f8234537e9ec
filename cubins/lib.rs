//! The embedded kernels and their typed launch functions.
