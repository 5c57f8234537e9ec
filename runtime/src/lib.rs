//! Loads and dispatches embedded CUDA kernels through the driver alone.
//!
//! Nothing links CUDA. [`Driver::load`] looks the NVIDIA driver up and opens it; a [`Device`] holds the primary context of a
//! GPU; a [`Library`] takes an archive of kernels and loads them on first use; a [`Queue`] checks every dispatch against the
//! kernel's contract and launches it. [`Graph`] replays recorded dispatches, [`Uploader`] streams model weights.
//! [`Driver::prefer_one_connection`] shortens the start of processes with one stream.
//! [`Buffer::make_constant`] after the upload lets kernels read weights while the kernel before them still runs, whatever
//! that writes.
//!
//! ```no_run
//! use zinc_runtime::{Device, DeviceSelector, Library, Queue};
//!
//! # fn run(archive: cubin_format::Archive<'static>) -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(&DeviceSelector::Auto)?;
//! let library = Library::new(&device, archive)?;
//! let queue = Queue::new(&library)?;
//!
//! let (a, b, c) = (device.buffer(4096)?, device.buffer(4096)?, device.buffer(4096)?);
//! queue.fill(a.all(), 0)?;
//! queue.fill(b.all(), 0)?;
//! queue.dispatch(zinc_contract::kernel("vadd")?, &[1024], &[a.all(), b.all(), c.all()])?;
//! let mut result = vec![0; 4096];
//! queue.read(c.all(), &mut result)?;
//! # Ok(())
//! # }
//! ```

mod buffer;
#[cfg(feature = "cudarc")]
pub mod cudarc;
mod device;
mod dispatch;
mod driver;
mod error;
mod ffi;
mod graph;
mod library;
mod list;
mod queue;
#[allow(
    non_camel_case_types,
    dead_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    reason = "generated from the shim's header"
)]
#[rustfmt::skip]
mod shim_bindings;
mod staging;
mod stream;
mod writes;

pub use buffer::{Buffer, BufferError, BufferSlice};
pub use cubin_format::Capability;
pub use device::{DEVICE_VARIABLE, Device, DeviceError, DeviceInfo, DeviceSelector, Uuid, choose};
pub use dispatch::DispatchError;
pub use driver::{
    Attempt, CONNECTION_VARIABLES, Cause, Driver, DriverError, DriverVersion, LIBRARY_VARIABLE,
    Lookup, Outcome, Search,
};
pub use error::{CudaError, CudaErrorDetails};
pub use graph::{DispatchId, Graph, GraphError};
pub use library::{EntryInfo, Library, LibraryError, compiled_arch};
pub use list::CommandList;
pub use queue::{Queue, QueueError, QueueOptions, Token};
pub use staging::{StagingOptions, TransferError, Uploader};
pub use stream::Event;
