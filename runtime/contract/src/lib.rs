//! The kernel contracts as Rust data: fields, buffers, preconditions, launch geometry and the dispatch check.
