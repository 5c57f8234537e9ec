//! Typed launch functions: for each kernel its push block, its buffers by name, and a function that dispatches it.
//!
//! Everything here is generated from the catalog. The functions assemble the words of the push struct and leave the
//! check to the [`Dispatch`] implementation.

include!(concat!(env!("OUT_DIR"), "/launch.rs"));
