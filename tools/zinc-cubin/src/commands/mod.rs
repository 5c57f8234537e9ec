//! One module per command.

pub mod bench;
pub mod doctor;
pub mod export;
pub mod generate;
pub mod list;
pub mod run;
pub mod show;
pub mod verify;
pub mod verify_static;
