//! The program as users run it: exit codes, what is printed where, and which files there are afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod archive;
mod bench;
mod common;
mod device;
mod export;
mod fixture;
mod gguf;
mod help;
mod linkage;
mod list;
mod verify;
