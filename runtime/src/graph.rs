//! Graphs: recorded dispatches that the device replays from one launch, with new push values where wanted.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zinc_contract::{Geometry, Kernel};

use crate::device::Device;
use crate::dispatch::{self, Arguments, Checked, DispatchError, PLACEHOLDER, Recorded};
use crate::error::CudaError;
use crate::ffi;
use crate::library::{Entry, Library};
use crate::queue::{Holds, QueueError};
use crate::writes::Writes;

/// A dispatch of a graph, counted from 0 in the order of recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(u32);

impl DispatchId {
    /// The dispatch that was recorded as number `index`.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a dispatch of a graph was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// There is no such dispatch.
    #[error("the graph has {found} dispatches, wanted number {}", wanted.0)]
    UnknownDispatch {
        /// What was asked for.
        wanted: DispatchId,
        /// Dispatches of the graph.
        found: usize,
    },
    /// The new words break the contract, or the device can't run them.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The new words ask for another cluster than the dispatch was recorded with, which a graph keeps.
    #[error(
        "{kernel} with these words has clusters of {found} blocks, the graph was recorded with {recorded}"
    )]
    Cluster {
        /// The kernel.
        kernel: &'static str,
        /// Blocks per cluster as recorded; 1 for none.
        recorded: u32,
        /// What the words ask for.
        found: u32,
    },
    /// The driver refused the change.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// The driver's graph and everything that it uses; commands that launched it hold it until they are done.
#[derive(Debug)]
pub(crate) struct GraphShared {
    raw: NonNull<ffi::zinc_graph>,
    #[expect(dead_code, reason = "held for its drop")]
    holds: Holds,
    writes: Writes,
    library: Library,
    /// The command that last took a reference.
    holder: AtomicU64,
}

// SAFETY: the driver's graph is changed and launched through the one `Graph` only, and destroyed by the last reference.
unsafe impl Send for GraphShared {}
// SAFETY: as above.
unsafe impl Sync for GraphShared {}

impl GraphShared {
    /// Whether `command` has to take a reference; it counts as taken afterwards.
    pub(crate) fn take_for(&self, command: u64) -> bool {
        self.holder.swap(command, Ordering::Relaxed) != command
    }
}

impl Drop for GraphShared {
    fn drop(&mut self) {
        // SAFETY: no command that launched the graph is pending, and the graph is not used again.
        unsafe { ffi::zinc_graph_destroy(self.raw.as_ptr()) };
    }
}

/// Recorded dispatches, instantiated for replay.
///
/// Made by [`Queue::end_capture`](crate::Queue::end_capture) or [`CommandList::graph`](crate::CommandList::graph), and
/// launched by [`Queue::launch`](crate::Queue::launch). It keeps its buffers and kernels alive.
#[derive(Debug)]
pub struct Graph {
    shared: Arc<GraphShared>,
    dispatches: Vec<Recorded>,
    /// A graph is changed and launched by one thread at a time.
    not_sync: PhantomData<Cell<()>>,
}

impl Graph {
    /// Takes over what a capture instantiated; node `i` is dispatch `i`.
    pub(crate) fn new(
        library: &Library,
        raw: *mut ffi::zinc_graph,
        dispatches: Vec<Recorded>,
        holds: Holds,
        writes: Writes,
    ) -> Result<Self, QueueError> {
        let graph = Self {
            shared: Arc::new(GraphShared {
                raw: NonNull::new(raw).expect("the shim returns a graph on success"),
                holds,
                writes,
                library: library.clone(),
                holder: AtomicU64::new(0),
            }),
            dispatches,
            not_sync: PhantomData,
        };
        for (node, recorded) in (0..).zip(&graph.dispatches) {
            if recorded.geometry.is_none() {
                graph.enable(node, false)?;
            }
        }
        Ok(graph)
    }

    /// Builds a graph of recorded dispatches, each depending on the one before.
    pub(crate) fn build(
        library: &Library,
        dispatches: Vec<Recorded>,
        holds: Holds,
        writes: Writes,
    ) -> Result<Self, QueueError> {
        let packed: Vec<Arguments> = dispatches
            .iter()
            .map(|recorded| recorded.arguments(&recorded.words))
            .collect();
        let entry = |kernel: &'static Kernel| -> &Entry {
            library.entry(kernel).expect("recording loaded the kernel")
        };
        let launches: Vec<ffi::zinc_launch> = dispatches
            .iter()
            .zip(&packed)
            .enumerate()
            .map(|(at, (recorded, arguments))| {
                let entry = entry(recorded.kernel);
                let geometry = &recorded.geometry.unwrap_or(PLACEHOLDER);
                let early = dispatch::recorded_reads_early(entry, &dispatches, at, geometry);
                arguments.launch(entry, geometry, early)
            })
            .collect();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is open; records, arguments and entries live across the call, which copies them.
        ffi::call(|error| unsafe {
            ffi::zinc_graph_build(
                library.device().raw(),
                launches.as_ptr(),
                launches.len() as u32,
                &mut raw,
                error,
            )
        })?;
        Self::new(library, raw, dispatches, holds, writes)
    }

    /// Dispatches of the graph.
    pub fn len(&self) -> usize {
        self.dispatches.len()
    }

    /// Whether the graph has no dispatch; it may still have copies and fills.
    pub fn is_empty(&self) -> bool {
        self.dispatches.is_empty()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.shared.library.device()
    }

    /// Kernel and words of a dispatch.
    ///
    /// # Errors
    /// `UnknownDispatch`.
    pub fn dispatch(&self, id: DispatchId) -> Result<(&'static Kernel, &[u32]), GraphError> {
        let recorded = self.recorded(id)?;
        Ok((recorded.kernel, &recorded.words))
    }

    /// Gives a dispatch new words for later launches: push fields, launch counts and specialization values. They are checked
    /// like a new dispatch on the same buffers; grid, block and shared memory follow. Launches that are already submitted
    /// keep the old ones.
    ///
    /// # Errors
    /// `Cluster`, and what [`Queue::dispatch`](crate::Queue::dispatch) would refuse; the dispatch is unchanged then.
    pub fn set_words(&mut self, id: DispatchId, words: &[u32]) -> Result<(), GraphError> {
        let recorded = self.recorded(id)?;
        let Checked { entry, geometry } = dispatch::check_bindings(
            &self.shared.library,
            recorded.kernel,
            words,
            &recorded.bindings,
        )?;
        if let Some(geometry) = &geometry {
            if geometry.cluster != recorded.cluster {
                return Err(GraphError::Cluster {
                    kernel: recorded.kernel.name,
                    recorded: recorded.cluster,
                    found: geometry.cluster,
                });
            }
            self.set(id.index(), entry, geometry, words)?;
        }
        let toggled = geometry.is_some() != recorded.geometry.is_some();
        if toggled {
            self.enable(id.0, geometry.is_some())?;
        }
        let recorded = &mut self.dispatches[id.index()];
        recorded.words.copy_from_slice(words);
        recorded.geometry = geometry;
        if toggled {
            self.set_next(id.index())?;
        }
        Ok(())
    }

    /// Gives a node the launch that it has with these words.
    fn set(
        &self,
        at: usize,
        entry: &Entry,
        geometry: &Geometry,
        words: &[u32],
    ) -> Result<(), CudaError> {
        let arguments = self.dispatches[at].arguments(words);
        let early = dispatch::recorded_reads_early(entry, &self.dispatches, at, geometry);
        let launch = arguments.launch(entry, geometry, early);
        // SAFETY: graph and entry are open; the call copies record and arguments.
        ffi::call(|error| unsafe {
            ffi::zinc_graph_set(self.shared.raw.as_ptr(), at as u32, &launch, error)
        })
    }

    /// Another dispatch than before runs ahead of the next one that does, once number `at` was enabled or disabled.
    fn set_next(&self, at: usize) -> Result<(), GraphError> {
        let next = (at + 1..).zip(&self.dispatches[at + 1..]);
        for (next, recorded) in next {
            if let Some(geometry) = &recorded.geometry {
                let entry = self.shared.library.entry(recorded.kernel);
                let entry = entry.map_err(DispatchError::from)?;
                return Ok(self.set(next, entry, geometry, &recorded.words)?);
            }
        }
        Ok(())
    }

    /// Changes the words of a dispatch in place; see [`Graph::set_words`].
    ///
    /// # Errors
    /// As [`Graph::set_words`].
    pub fn update(
        &mut self,
        id: DispatchId,
        change: impl FnOnce(&mut [u32]),
    ) -> Result<(), GraphError> {
        let mut words = [0; zinc_contract::MAX_WORDS];
        let old = &self.recorded(id)?.words;
        let words = &mut words[..old.len()];
        words.copy_from_slice(old);
        change(words);
        self.set_words(id, words)
    }

    fn recorded(&self, id: DispatchId) -> Result<&Recorded, GraphError> {
        self.dispatches
            .get(id.index())
            .ok_or(GraphError::UnknownDispatch {
                wanted: id,
                found: self.dispatches.len(),
            })
    }

    fn enable(&self, node: u32, enabled: bool) -> Result<(), CudaError> {
        // SAFETY: the graph is open.
        ffi::call(|error| unsafe {
            ffi::zinc_graph_enable(self.shared.raw.as_ptr(), node, i32::from(enabled), error)
        })
    }

    pub(crate) fn shared(&self) -> &Arc<GraphShared> {
        &self.shared
    }

    /// What the graph writes.
    pub(crate) fn writes(&self) -> &Writes {
        &self.shared.writes
    }

    pub(crate) fn launch(&self, stream: *mut ffi::zinc_stream) -> Result<(), CudaError> {
        // SAFETY: graph and stream are open, and the command that launches holds the graph.
        ffi::call(|error| unsafe {
            ffi::zinc_graph_launch(self.shared.raw.as_ptr(), stream, error)
        })
    }

    pub(crate) fn prepare(&self, stream: *mut ffi::zinc_stream) -> Result<(), CudaError> {
        // SAFETY: graph and stream are open.
        ffi::call(|error| unsafe {
            ffi::zinc_graph_upload(self.shared.raw.as_ptr(), stream, error)
        })
    }
}
