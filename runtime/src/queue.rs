//! Command queues: dispatches in order on a stream, committed as commands that can be waited for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zinc_contract::{Binding, Dispatch, Geometry, Kernel};

use crate::buffer::{Buffer, BufferError, BufferSlice};
use crate::device::Device;
use crate::dispatch::{self, Arguments, Checked, DispatchError, Last, PLACEHOLDER, Recorded};
use crate::error::CudaError;
use crate::ffi;
use crate::graph::{DispatchId, Graph, GraphShared};
use crate::library::{Entry, Library};
use crate::list::CommandList;
use crate::staging::{Staging, StagingOptions};
use crate::stream::{Event, Stream};
use crate::writes::Writes;

/// Why a queue refused something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A driver call, or work that was queued earlier, failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A slice is wrong.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// As many commands as the ring holds are pending.
    #[error("{capacity} commands are pending, and the ring holds no more: wait for one")]
    RingFull {
        /// Commands that the ring holds.
        capacity: usize,
    },
    /// A command was begun and not committed.
    #[error("a command is open already: commit it first")]
    AlreadyBegun,
    /// The queue records a graph.
    #[error("the queue is capturing a graph: end the capture first")]
    Capturing,
    /// The queue does not record a graph.
    #[error("the queue is not capturing a graph")]
    NotCapturing,
    /// The token is another queue's.
    #[error("the token belongs to another queue")]
    ForeignToken,
    /// The graph or list was made for another device.
    #[error("made for another device or context than the queue's")]
    WrongDevice,
}

/// How a queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// Commands that may be pending at once.
    pub ring: usize,
    /// Pinned memory for [`Queue::write`] and [`Queue::read`], allocated when they are first used.
    pub staging: StagingOptions,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            ring: 64,
            staging: StagingOptions {
                slots: 2,
                slot_bytes: 2 << 20,
            },
        }
    }
}

/// A committed command of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    queue: u64,
    sequence: u64,
}

impl Token {
    /// The token as two numbers, for interfaces that carry no Rust types.
    pub fn to_raw(self) -> [u64; 2] {
        [self.queue, self.sequence]
    }

    /// The token with the numbers of [`Token::to_raw`]. Made-up numbers do no harm: a queue refuses what it never gave out.
    pub fn from_raw([queue, sequence]: [u64; 2]) -> Self {
        Self { queue, sequence }
    }
}

/// Identities of commands, lists and captures; 0 is nobody.
pub(crate) fn next_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What a command keeps alive until it is done.
#[derive(Debug)]
enum Held {
    Buffer(#[expect(dead_code, reason = "held for its drop")] Buffer),
    Graph(#[expect(dead_code, reason = "held for its drop")] Arc<GraphShared>),
}

/// References of one command, capture or list: each buffer once.
#[derive(Debug)]
pub(crate) struct Holds {
    identity: u64,
    held: Vec<Held>,
}

impl Holds {
    pub(crate) fn new() -> Self {
        Self {
            identity: next_identity(),
            held: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn hold(&mut self, buffer: &Buffer) {
        if buffer.needs_holding(self.identity) {
            self.held.push(Held::Buffer(buffer.clone()));
            buffer.set_holder(self.identity);
        }
    }

    pub(crate) fn hold_slices(&mut self, buffers: &[BufferSlice<'_>]) {
        for buffer in buffers.iter().filter_map(BufferSlice::buffer) {
            self.hold(buffer);
        }
    }

    fn hold_graph(&mut self, graph: &Arc<GraphShared>) {
        if graph.take_for(self.identity) {
            self.held.push(Held::Graph(graph.clone()));
        }
    }

    /// Lets go of everything, for the next command.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.identity = next_identity();
    }
}

#[derive(Debug)]
struct Command {
    sequence: u64,
    holds: Holds,
    /// Recorded behind the command's last work when it is committed.
    done: Event,
}

/// A graph that is being recorded.
#[derive(Debug)]
struct Capture {
    holds: Holds,
    writes: Writes,
    dispatches: Vec<Recorded>,
    nodes: Vec<*mut ffi::zinc_node>,
    /// Whether a dispatch was the last to be recorded.
    follows: bool,
}

#[derive(Debug)]
struct State {
    open: Command,
    begun: bool,
    /// Oldest first.
    pending: VecDeque<Command>,
    /// Ready for reuse, so that no command allocates once the queue is warm.
    spare: Vec<Command>,
    next_sequence: u64,
    capture: Option<Capture>,
    staging: Option<Staging>,
    last: Last,
    /// Whether others may give the stream work that the queue does not see.
    shared: bool,
}

/// A queue of work for one device.
///
/// A dispatch is launched at once, in order, so that the device starts while the host still records. Committing ends a
/// command: it marks the point that can be waited for, and the buffers and graphs that the command uses stay alive until it
/// is done and released. A dispatch without [`Queue::begin`] opens a command by itself.
///
/// At most [`QueueOptions::ring`] commands are pending. When the ring is full, [`Queue::commit_async`] waits for the oldest
/// one, and [`Queue::try_commit_async`] refuses.
///
/// A queue can move between threads and belongs to one at a time.
///
/// ```no_run
/// # fn run(queue: &zinc_runtime::Queue, kernel: &'static zinc_contract::Kernel, words: &[u32],
/// #        buffers: &[zinc_runtime::BufferSlice<'_>]) -> Result<(), Box<dyn std::error::Error>> {
/// queue.begin()?;
/// queue.dispatch(kernel, words, buffers)?;
/// queue.dispatch(kernel, words, buffers)?;
/// queue.commit_and_wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    identity: u64,
    library: Library,
    stream: Stream,
    options: QueueOptions,
    state: RefCell<State>,
}

// SAFETY: the raw node pointers in a capture are handles of thread-safe driver functions; everything else is Send.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue on a stream of its own, for the kernels of `library`.
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn new(library: &Library) -> Result<Self, CudaError> {
        Self::with_options(library, QueueOptions::default())
    }

    /// As [`Queue::new`].
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn with_options(library: &Library, options: QueueOptions) -> Result<Self, CudaError> {
        let stream = Stream::new(library.device())?;
        Self::on(library, stream, options, false)
    }

    /// A queue on a stream that another CUDA client owns, without taking it over. Work of both runs in submission order.
    ///
    /// # Safety
    /// `stream` is a valid `CUstream` of the library's context (null: its null stream) and outlives the queue. If its owner
    /// captures it into a graph of their own while commands of this queue are recorded, the buffers and the library have to
    /// outlive that graph. What the graph writes is not made constant.
    ///
    /// # Errors
    /// A driver call that fails.
    pub unsafe fn from_raw_stream(
        library: &Library,
        stream: *mut c_void,
        options: QueueOptions,
    ) -> Result<Self, CudaError> {
        let stream = Stream::wrap(library.device(), stream.cast(), None);
        Self::on(library, stream, options, true)
    }

    /// On a stream that others may be using, too, or not.
    pub(crate) fn on(
        library: &Library,
        stream: Stream,
        options: QueueOptions,
        shared: bool,
    ) -> Result<Self, CudaError> {
        let open = Command::new(library.device())?;
        Ok(Self {
            identity: next_identity(),
            library: library.clone(),
            stream,
            options: QueueOptions {
                ring: options.ring.max(1),
                ..options
            },
            state: RefCell::new(State {
                open,
                begun: false,
                pending: VecDeque::new(),
                spare: Vec::new(),
                next_sequence: 1,
                capture: None,
                staging: None,
                last: Last::UNKNOWN,
                shared,
            }),
        })
    }

    /// The kernels.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.library.device()
    }

    /// The driver's handle of the stream (`CUstream`), for other CUDA clients. From now on the queue does not rely on what it
    /// gave to the stream last: only [constant](Buffer::make_constant) buffers are read early.
    pub fn raw_stream(&self) -> *mut c_void {
        let mut state = self.state.borrow_mut();
        state.shared = true;
        state.forget_last();
        self.stream.raw().cast()
    }

    // ---- commands ----

    /// Opens a command. Dispatches open one by themselves; this says where a command starts, and finds one that was
    /// forgotten.
    ///
    /// # Errors
    /// `AlreadyBegun` where a command is open; `Capturing`.
    pub fn begin(&self) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        if std::mem::replace(&mut state.begun, true) {
            return Err(QueueError::AlreadyBegun);
        }
        Ok(())
    }

    /// Commits the open command. Waits for the oldest pending one first if the ring is full.
    ///
    /// # Errors
    /// `Capturing`, or a failure of the driver or of earlier work.
    pub fn commit_async(&self) -> Result<Token, QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        if state.pending.len() >= self.options.ring
            && let Some(oldest) = state.pending.front()
        {
            oldest.done.wait()?;
            state.release_oldest();
        }
        self.commit(&mut state)
    }

    /// Commits the open command if the ring has room.
    ///
    /// # Errors
    /// `RingFull`: the command stays open. Else as [`Queue::commit_async`].
    pub fn try_commit_async(&self) -> Result<Token, QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        state.release_completed()?;
        let capacity = self.options.ring;
        if state.pending.len() >= capacity {
            return Err(QueueError::RingFull { capacity });
        }
        self.commit(&mut state)
    }

    fn commit(&self, state: &mut State) -> Result<Token, QueueError> {
        let next = match state.spare.pop() {
            Some(command) => command,
            None => Command::new(self.device())?,
        };
        if let Err(error) = state.open.done.record(&self.stream) {
            state.spare.push(next);
            return Err(error.into());
        }
        let mut committed = std::mem::replace(&mut state.open, next);
        committed.sequence = state.next_sequence;
        state.next_sequence += 1;
        state.begun = false;
        let token = Token {
            queue: self.identity,
            sequence: committed.sequence,
        };
        state.pending.push_back(committed);
        Ok(token)
    }

    /// Commits the open command and waits until it, and so everything before it, is done.
    ///
    /// # Errors
    /// As [`Queue::commit_async`] and [`Queue::wait`].
    pub fn commit_and_wait(&self) -> Result<(), QueueError> {
        let token = self.commit_async()?;
        self.wait(token)
    }

    /// Begins a command, runs `record`, commits and waits: the usual way to run a batch.
    ///
    /// # Errors
    /// What `record` returns; then the command stays open with what was recorded. Else as [`Queue::commit_and_wait`].
    pub fn batch<T, E: From<QueueError>>(
        &self,
        record: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin()?;
        let value = record(self)?;
        self.commit_and_wait()?;
        Ok(value)
    }

    /// Waits for a command and releases it and all before it. A command that was released already is done.
    ///
    /// # Errors
    /// `ForeignToken`; a failure of the driver or of queued work: then nothing is released.
    pub fn wait(&self, token: Token) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        if token.queue != self.identity || token.sequence >= state.next_sequence {
            return Err(QueueError::ForeignToken);
        }
        if let Some(command) = state
            .pending
            .iter()
            .find(|command| command.sequence == token.sequence)
        {
            command.done.wait()?;
        }
        while state
            .pending
            .front()
            .is_some_and(|command| command.sequence <= token.sequence)
        {
            state.release_oldest();
        }
        Ok(())
    }

    /// Whether a command is done.
    ///
    /// # Errors
    /// `ForeignToken`; a failure of the driver or of queued work.
    pub fn is_done(&self, token: Token) -> Result<bool, QueueError> {
        let state = self.state.borrow();
        if token.queue != self.identity || token.sequence >= state.next_sequence {
            return Err(QueueError::ForeignToken);
        }
        match state
            .pending
            .iter()
            .find(|command| command.sequence == token.sequence)
        {
            Some(command) => Ok(command.done.is_done()?),
            None => Ok(true),
        }
    }

    /// Releases the commands that are done, without waiting. Returns how many.
    ///
    /// # Errors
    /// A failure of the driver or of queued work.
    pub fn release_completed(&self) -> Result<usize, QueueError> {
        self.state.borrow_mut().release_completed()
    }

    /// Commands that are committed and not released.
    pub fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Waits until everything submitted is done, and releases all committed commands. The open command stays open.
    ///
    /// # Errors
    /// A failure of the driver or of queued work.
    pub fn synchronize(&self) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        self.stream.synchronize()?;
        while !state.pending.is_empty() {
            state.release_oldest();
        }
        Ok(())
    }

    // ---- work ----

    /// Dispatches a kernel: checks words and buffers against its contract, derives grid, block and shared memory, and
    /// launches. Nothing is launched where the contract says that there is nothing to do.
    ///
    /// `words` is the whole push struct: push fields, launch counts, specialization values. `buffers` are in binding order.
    ///
    /// # Errors
    /// See [`DispatchError`]. What is refused never reaches the device.
    // Not inlined into the caller's crate: it is compiled with this crate's optimisation, whatever the caller's is.
    #[inline(never)]
    pub fn dispatch(
        &self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        let mut state = self.state.borrow_mut();
        let stream = state.immediate(&self.stream);
        let Checked { entry, geometry } =
            dispatch::check(&self.library, kernel, words, buffers, stream)?;
        self.enqueue(&mut state, kernel, entry, geometry, words, buffers)
    }

    /// Dispatches a kernel with a geometry that the caller worked out, and checks nothing.
    ///
    /// # Safety
    /// [`Kernel::check`] accepts `words` and `buffers`, `geometry` is what [`Kernel::geometry`] gives for them on this device
    /// and for the loaded target, its shared memory is at most 48 KiB less the entry's static shared memory and its cluster
    /// at most 8 blocks or a checked dispatch has asked for as much before, the buffers belong to the queue's context, and those
    /// that the kernel writes are not constant.
    ///
    /// # Errors
    /// The kernel can't be loaded, or the driver refuses the launch.
    // As above.
    #[inline(never)]
    pub unsafe fn dispatch_unchecked(
        &self,
        kernel: &'static Kernel,
        geometry: Geometry,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        let entry = self.library.entry(kernel)?;
        let mut state = self.state.borrow_mut();
        self.enqueue(&mut state, kernel, entry, Some(geometry), words, buffers)
    }

    #[inline]
    fn enqueue(
        &self,
        state: &mut State,
        kernel: &'static Kernel,
        entry: &Entry,
        geometry: Option<Geometry>,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        if let Some(capture) = &mut state.capture {
            return self.capture_dispatch(
                capture,
                Recorded::new(kernel, geometry, words, buffers, false),
                entry,
                buffers,
                state.shared,
            );
        }
        let Some(geometry) = geometry else {
            return Ok(());
        };
        state.begun = true;
        state.open.holds.hold_slices(buffers);
        let arguments = Arguments::pack(buffers.iter().map(BufferSlice::address), words);
        let early = dispatch::reads_early(entry, kernel, &geometry, buffers, &state.last);
        let launch = arguments.launch(entry, &geometry, early);
        // Should the launch fail, another dispatch is the last one.
        state.last.forget();
        dispatch::submit(
            self.device(),
            self.stream.raw(),
            std::slice::from_ref(&launch),
        )
        .map_err(|source| launch_error(kernel, entry, source))?;
        state.set_last(kernel, buffers.iter().map(BufferSlice::binding));
        Ok(())
    }

    #[cold]
    fn capture_dispatch(
        &self,
        capture: &mut Capture,
        mut recorded: Recorded,
        entry: &Entry,
        buffers: &[BufferSlice<'_>],
        shared: bool,
    ) -> Result<(), DispatchError> {
        capture.holds.hold_slices(buffers);
        capture.writes.add_dispatch(recorded.kernel, buffers);
        let kernel = recorded.kernel;
        let geometry = recorded.geometry.unwrap_or(PLACEHOLDER);
        let arguments = recorded.arguments(&recorded.words);
        let at = capture.dispatches.len();
        recorded.follows = capture.follows && !shared;
        capture.dispatches.push(recorded);
        let early = dispatch::recorded_reads_early(entry, &capture.dispatches, at, &geometry);
        let launch = arguments.launch(entry, &geometry, early);
        let mut node = std::ptr::null_mut();
        dispatch::submit(
            self.device(),
            self.stream.raw(),
            std::slice::from_ref(&launch),
        )
        .and_then(|()| {
            // SAFETY: context and stream are open.
            ffi::call(|error| unsafe {
                ffi::zinc_capture_node(self.device().raw(), self.stream.raw(), &mut node, error)
            })
        })
        .map_err(|source| {
            capture.dispatches.pop();
            capture.follows = false;
            launch_error(kernel, entry, source)
        })?;
        capture.nodes.push(node);
        capture.follows = true;
        Ok(())
    }

    /// Submits a command list in one call.
    ///
    /// # Errors
    /// `WrongLibrary`; `Buffer` where the list writes a buffer that was made constant since; `Launch` with the position in the
    /// list: the dispatches before it were submitted.
    pub fn submit(&self, list: &CommandList) -> Result<(), DispatchError> {
        if !list.library().is(&self.library) {
            return Err(DispatchError::WrongLibrary);
        }
        if let Some(written) = list.writes().constant() {
            return Err(written.refused());
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(capture) = &mut state.capture {
            for recorded in list.dispatches() {
                let entry = self.library.entry(recorded.kernel)?;
                self.capture_dispatch(capture, recorded.clone(), entry, &[], state.shared)?;
            }
            list.hold_in(&mut capture.holds);
            capture.writes.add_all(list.writes());
            return Ok(());
        }
        state.begun = true;
        list.hold_in(&mut state.open.holds);
        state.last.forget();
        list.submit(self.device(), self.stream.raw())?;
        if let Some(last) = list.last() {
            state.set_last(last.kernel, last.bindings.iter().copied());
        }
        Ok(())
    }

    /// Launches a graph.
    ///
    /// # Errors
    /// `Capturing`, `WrongDevice`, `Buffer` where the graph writes a buffer that was made constant since it was recorded, or a
    /// failure of the driver or of earlier work.
    pub fn launch(&self, graph: &Graph) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        if !graph.device().same_context(self.device()) {
            return Err(QueueError::WrongDevice);
        }
        if graph.writes().constant().is_some() {
            return Err(BufferError::Constant.into());
        }
        state.begun = true;
        state.open.holds.hold_graph(graph.shared());
        state.forget_last();
        graph.launch(self.stream.raw())?;
        Ok(())
    }

    /// Moves what the device needs of a graph to the device, so that its first launch costs no more than later ones.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    pub fn prepare(&self, graph: &Graph) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        if !graph.device().same_context(self.device()) {
            return Err(QueueError::WrongDevice);
        }
        state.begun = true;
        state.open.holds.hold_graph(graph.shared());
        graph.prepare(self.stream.raw())?;
        Ok(())
    }

    /// Fills a slice with a byte.
    ///
    /// # Errors
    /// An unbound, foreign or constant slice, or a failure of the driver.
    pub fn fill(&self, to: BufferSlice<'_>, value: u8) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        to.admit_target(self.device(), state.immediate(&self.stream))?;
        if to.bytes() == 0 {
            return Ok(());
        }
        state.hold(&[to]);
        state.writes(to);
        state.forget_last();
        // SAFETY: context and stream are open, and the buffer is held until the command is done.
        ffi::call(|error| unsafe {
            ffi::zinc_fill(
                self.device().raw(),
                self.stream.raw(),
                to.address(),
                value,
                to.bytes(),
                error,
            )
        })?;
        Ok(())
    }

    /// Copies a slice to another of the same length. They must not overlap.
    ///
    /// # Errors
    /// Slices of different length, unbound or foreign ones, a constant target, or a failure of the driver.
    pub fn copy(&self, to: BufferSlice<'_>, from: BufferSlice<'_>) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        let stream = state.immediate(&self.stream);
        to.admit_target(self.device(), stream)?;
        from.admit_bound(self.device(), stream)?;
        same_length(from.bytes(), to.bytes())?;
        if to.bytes() == 0 {
            return Ok(());
        }
        state.hold(&[to, from]);
        state.writes(to);
        state.forget_last();
        // SAFETY: context and stream are open, and the buffers are held until the command is done.
        ffi::call(|error| unsafe {
            ffi::zinc_copy_on_device(
                self.device().raw(),
                self.stream.raw(),
                to.address(),
                from.address(),
                to.bytes(),
                error,
            )
        })?;
        Ok(())
    }

    /// Writes host bytes to a slice of the same length, in order with the queue's other work. The bytes are copied before
    /// this returns. For model weights see [`Uploader`](crate::Uploader).
    ///
    /// # Errors
    /// A slice of another length, an unbound, foreign or constant one, `Capturing`, or a failure of the driver.
    pub fn write(&self, to: BufferSlice<'_>, data: &[u8]) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        to.admit_target(self.device(), state.immediate(&self.stream))?;
        same_length(data.len() as u64, to.bytes())?;
        state.hold(&[to]);
        state.forget_last();
        self.staging(&mut state)?.write(&self.stream, to, data)?;
        Ok(())
    }

    /// Reads a slice into host memory of the same length: waits for the queue's work before it, and for the copy.
    ///
    /// # Errors
    /// A slice of another length, an unbound or foreign one, `Capturing`, or a failure of the driver or of queued work.
    pub fn read(&self, from: BufferSlice<'_>, data: &mut [u8]) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        from.admit_bound(self.device(), state.immediate(&self.stream))?;
        same_length(from.bytes(), data.len() as u64)?;
        state.hold(&[from]);
        state.forget_last();
        self.staging(&mut state)?.read(&self.stream, from, data)?;
        Ok(())
    }

    fn staging<'a>(&self, state: &'a mut State) -> Result<&'a mut Staging, CudaError> {
        let staging = match state.staging.take() {
            Some(staging) => staging,
            None => Staging::new(self.device(), self.options.staging)?,
        };
        Ok(state.staging.insert(staging))
    }

    // ---- order and time ----

    /// Records an event behind what was submitted so far.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn record(&self, event: &Event) -> Result<(), QueueError> {
        event.record(&self.stream)?;
        Ok(())
    }

    /// Lets later work of this queue wait for an event of another stream, without blocking the host.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn wait_for(&self, event: &Event) -> Result<(), QueueError> {
        self.state.borrow_mut().forget_last();
        self.stream.wait(event)?;
        Ok(())
    }

    /// Runs `record`, waits for the device, and returns how long the device took for what was submitted.
    ///
    /// # Errors
    /// What `record` returns, or a failure of the driver or of queued work.
    pub fn time<T, E: From<QueueError>>(
        &self,
        record: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<(T, Duration), E> {
        let new = || Event::new(self.device()).map_err(QueueError::from);
        let (start, end) = (new()?, new()?);
        self.record(&start)?;
        let value = record(self)?;
        self.record(&end)?;
        end.wait().map_err(QueueError::from)?;
        let took = end.since(&start).map_err(QueueError::from)?;
        Ok((value, took))
    }

    // ---- graphs ----

    /// Starts to record a graph: from now on dispatches, fills and copies of this queue, and what other CUDA clients submit
    /// to its stream, become part of the graph and do not run.
    ///
    /// # Errors
    /// `AlreadyBegun` where a command is open, `Capturing`, or a failure of the driver.
    pub fn begin_capture(&self) -> Result<(), QueueError> {
        let mut state = self.state.borrow_mut();
        state.not_capturing()?;
        if state.begun {
            return Err(QueueError::AlreadyBegun);
        }
        // SAFETY: context and stream are open.
        ffi::call(|error| unsafe {
            ffi::zinc_capture_begin(self.device().raw(), self.stream.raw(), error)
        })?;
        state.capture = Some(Capture {
            holds: Holds::new(),
            writes: Writes::new(),
            dispatches: Vec::new(),
            nodes: Vec::new(),
            follows: false,
        });
        state.last.forget();
        Ok(())
    }

    /// The dispatch that was recorded last, to give it new words when the graph is replayed.
    pub fn last_captured(&self) -> Option<DispatchId> {
        let state = self.state.borrow();
        let count = state.capture.as_ref()?.dispatches.len();
        count.checked_sub(1).map(DispatchId::new)
    }

    /// Ends the capture and makes the graph. Dispatches depend on each other in the order in which they were recorded.
    ///
    /// # Errors
    /// `NotCapturing`, or a failure of the driver; the capture is over in any case.
    pub fn end_capture(&self) -> Result<Graph, QueueError> {
        let capture = self
            .state
            .borrow_mut()
            .capture
            .take()
            .ok_or(QueueError::NotCapturing)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: context and stream are open, and the nodes are those of this capture.
        ffi::call(|error| unsafe {
            ffi::zinc_capture_end(
                self.device().raw(),
                self.stream.raw(),
                capture.nodes.as_ptr(),
                capture.nodes.len() as u32,
                &mut raw,
                error,
            )
        })?;
        let graph = Graph::new(
            &self.library,
            raw,
            capture.dispatches,
            capture.holds,
            capture.writes,
        )?;
        Ok(graph)
    }
}

/// The typed launch functions of [`zinc_contract::launch`] dispatch on a queue.
impl Dispatch for &Queue {
    type Slice<'a> = BufferSlice<'a>;
    type Error = DispatchError;

    #[inline]
    fn dispatch(
        self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Result<(), DispatchError> {
        Queue::dispatch(self, kernel, words, buffers)
    }
}

fn same_length(wanted: u64, found: u64) -> Result<(), BufferError> {
    match wanted == found {
        true => Ok(()),
        false => Err(BufferError::Length { wanted, found }),
    }
}

#[cold]
fn launch_error(kernel: &'static Kernel, entry: &Entry, source: CudaError) -> DispatchError {
    DispatchError::Launch {
        kernel: kernel.name,
        target: entry.info.target,
        index: source.index,
        source,
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.state.get_mut().capture.take().is_some() {
            // SAFETY: context and stream are open.
            unsafe { ffi::zinc_capture_abandon(self.device().raw(), self.stream.raw()) };
        }
        let state = self.state.get_mut();
        if !state.begun && state.pending.is_empty() {
            return;
        }
        // What the commands hold may go only when the device is done with it.
        if let Err(error) = self.stream.synchronize() {
            tracing::debug!(%error, "queue dropped after a failure");
        }
    }
}

impl Command {
    fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(Self {
            sequence: 0,
            holds: Holds::new(),
            done: Event::untimed(device)?,
        })
    }
}

impl State {
    fn not_capturing(&self) -> Result<(), QueueError> {
        match self.capture {
            None => Ok(()),
            Some(_) => Err(QueueError::Capturing),
        }
    }

    /// The stream by its key, where work is submitted at once and not recorded.
    #[inline]
    fn immediate(&self, stream: &Stream) -> Option<usize> {
        match self.capture {
            None => Some(stream.key()),
            Some(_) => None,
        }
    }

    /// Keeps buffers alive for the open command, or for the graph that is being recorded.
    fn hold(&mut self, buffers: &[BufferSlice<'_>]) {
        match &mut self.capture {
            Some(capture) => capture.holds.hold_slices(buffers),
            None => {
                self.begun = true;
                self.open.holds.hold_slices(buffers);
            }
        }
    }

    /// Notes what was dispatched last, where nobody else can have come in between.
    #[inline]
    fn set_last(
        &mut self,
        kernel: &'static Kernel,
        bindings: impl ExactSizeIterator<Item = Binding>,
    ) {
        if !self.shared {
            self.last.set(kernel, bindings);
        }
    }

    /// Something else than a dispatch comes.
    fn forget_last(&mut self) {
        self.last.forget();
        if let Some(capture) = &mut self.capture {
            capture.follows = false;
        }
    }

    /// Notes what a recorded copy or fill writes.
    fn writes(&mut self, to: BufferSlice<'_>) {
        if let Some(capture) = &mut self.capture {
            capture.writes.add(to);
        }
    }

    fn release_oldest(&mut self) {
        if let Some(mut command) = self.pending.pop_front() {
            command.holds.clear();
            self.spare.push(command);
        }
    }

    fn release_completed(&mut self) -> Result<usize, QueueError> {
        let mut released = 0;
        while let Some(oldest) = self.pending.front() {
            if !oldest.done.is_done()? {
                break;
            }
            self.release_oldest();
            released += 1;
        }
        Ok(released)
    }
}
