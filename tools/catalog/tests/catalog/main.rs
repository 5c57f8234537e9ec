//! Tests of the catalog as a whole: mistakes, generated code, and the project's own contracts.
#![allow(clippy::unwrap_used)]

mod errors;
mod generated;
mod project;
mod support;
