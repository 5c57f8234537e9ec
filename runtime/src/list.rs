//! Command lists: dispatches that are checked once, and submitted in one call as often as wanted.

use zinc_contract::{Dispatch, Kernel};

use crate::buffer::BufferSlice;
use crate::device::Device;
use crate::dispatch::{self, Arguments, Checked, DispatchError, Recorded};
use crate::ffi;
use crate::library::Library;
use crate::queue::Holds;
use crate::writes::Writes;
use crate::{Buffer, CudaError, Graph, QueueError};

/// Recorded dispatches. Every one is checked when it is recorded; submitting checks nothing again.
///
/// The list keeps its buffers alive, and so does every command that it is submitted to.
#[derive(Debug)]
pub struct CommandList {
    library: Library,
    dispatches: Vec<Recorded>,
    buffers: Vec<Buffer>,
    writes: Writes,
    /// What is launched, and which dispatch each is. The arguments are boxed so that the records can point to them.
    launches: Vec<ffi::zinc_launch>,
    origin: Vec<u32>,
    #[expect(clippy::vec_box, reason = "the records hold their addresses")]
    arguments: Vec<Box<Arguments>>,
}

// SAFETY: the records point into the list's own boxes and to entries that the library holds.
unsafe impl Send for CommandList {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for CommandList {}

impl CommandList {
    /// An empty list for the kernels of `library`.
    pub fn new(library: &Library) -> Self {
        Self {
            library: library.clone(),
            dispatches: Vec::new(),
            buffers: Vec::new(),
            writes: Writes::new(),
            launches: Vec::new(),
            origin: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Checks a dispatch as [`Queue::dispatch`](crate::Queue::dispatch) does, and appends it.
    ///
    /// # Errors
    /// See [`DispatchError`]; the list is unchanged.
    pub fn dispatch(
        &mut self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        let Checked { entry, geometry } =
            dispatch::check(&self.library, kernel, words, buffers, None)?;
        let at = self.dispatches.len();
        let recorded = Recorded::new(kernel, geometry, words, buffers, at > 0);
        let arguments = recorded.arguments(words);
        self.dispatches.push(recorded);
        if let Some(geometry) = &geometry {
            let arguments = Box::new(arguments);
            let early = dispatch::recorded_reads_early(entry, &self.dispatches, at, geometry);
            self.launches.push(arguments.launch(entry, geometry, early));
            self.origin.push(at as u32);
            self.arguments.push(arguments);
        }
        for buffer in buffers.iter().filter_map(BufferSlice::buffer) {
            if !self
                .buffers
                .iter()
                .any(|held| held.address() == buffer.address())
            {
                self.buffers.push(buffer.clone());
            }
        }
        self.writes.add_dispatch(kernel, buffers);
        Ok(())
    }

    /// Dispatches in the list, those with nothing to do included.
    pub fn len(&self) -> usize {
        self.dispatches.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.dispatches.is_empty()
    }

    /// The kernels.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Makes a graph of the list without a queue: each dispatch depends on the one before.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn graph(&self) -> Result<Graph, QueueError> {
        let mut holds = Holds::new();
        self.hold_in(&mut holds);
        let mut writes = Writes::new();
        writes.add_all(&self.writes);
        Graph::build(&self.library, self.dispatches.clone(), holds, writes)
    }

    /// What is launched last.
    pub(crate) fn last(&self) -> Option<&Recorded> {
        self.dispatches
            .iter()
            .rfind(|recorded| recorded.geometry.is_some())
    }

    pub(crate) fn dispatches(&self) -> &[Recorded] {
        &self.dispatches
    }

    /// What the list writes.
    pub(crate) fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(crate) fn hold_in(&self, holds: &mut Holds) {
        for buffer in &self.buffers {
            holds.hold(buffer);
        }
    }

    pub(crate) fn submit(
        &self,
        device: &Device,
        stream: *mut ffi::zinc_stream,
    ) -> Result<(), DispatchError> {
        dispatch::submit(device, stream, &self.launches).map_err(|source| self.launch_error(source))
    }

    #[cold]
    fn launch_error(&self, source: CudaError) -> DispatchError {
        let index = self.origin.get(source.index as usize).copied().unwrap_or(0);
        let kernel = self.dispatches[index as usize].kernel;
        match self.library.entry(kernel) {
            Ok(entry) => DispatchError::Launch {
                kernel: kernel.name,
                target: entry.info.target,
                index,
                source,
            },
            Err(error) => error.into(),
        }
    }
}

/// The typed launch functions of [`zinc_contract::launch`] record into a list.
impl Dispatch for &mut CommandList {
    type Slice<'a> = BufferSlice<'a>;
    type Error = DispatchError;

    fn dispatch(
        self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        CommandList::dispatch(self, kernel, words, buffers)
    }
}
