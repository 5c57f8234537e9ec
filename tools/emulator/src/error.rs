//! Everything that can go wrong in a dispatch, with the kernel, the block and the threads that it concerns.

use std::fmt;

use zinc_contract::ContractError;

/// Why a dispatch, or an access to a buffer, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The call breaks the kernel's contract; nothing ran.
    #[error(transparent)]
    Contract(#[from] ContractError),

    /// The kernel has no implementation that the emulator was built with.
    #[error("{kernel}: not in this build of the emulator (no implementation when it was built)")]
    NotEmulated {
        /// Name of the kernel.
        kernel: String,
    },

    /// The compiled kernel takes other parameters than its contract says.
    #[error("{kernel}: the entry takes {found}, the contract says {wanted}")]
    Signature {
        /// Name of the kernel.
        kernel: String,
        /// What was passed.
        wanted: Signature,
        /// What the compiled entry takes.
        found: Signature,
    },

    /// A block has no threads or more than 1024, or needs more shared memory than any device has.
    #[error(
        "{kernel}: a block of {threads} threads with {shared_bytes} bytes of shared memory is impossible"
    )]
    Geometry {
        /// Name of the kernel.
        kernel: String,
        /// Threads of the block.
        threads: u64,
        /// Dynamic shared memory of the block.
        shared_bytes: u64,
    },

    /// The memory for the threads of a block could not be reserved.
    #[error("{kernel}: no memory for the stacks of a block's threads")]
    Stacks {
        /// Name of the kernel.
        kernel: String,
        /// The system's reason.
        source: std::io::Error,
    },

    /// Threads of one block wait at different barriers.
    #[error("{kernel}: block {block}: divergent barrier: {first}, but {second}")]
    DivergentBarrier {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// One thread.
        first: Box<Waiting>,
        /// A thread at another barrier.
        second: Box<Waiting>,
    },

    /// A thread waits at a barrier that another one can't reach any more.
    #[error("{kernel}: block {block}: {waiting}, but thread {exited} has exited")]
    BarrierAfterExit {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// The thread that waits.
        waiting: Box<Waiting>,
        /// A thread that has returned.
        exited: Index,
    },

    /// A thread waits for the end of a phase for which arrivals are missing, and no other thread can go on.
    #[error(
        "{kernel}: block {block}: {waiting} for a phase that never ends: {missing} of {arrivals} arrivals are missing"
    )]
    EndlessPhase {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// The thread that waits.
        waiting: Box<Waiting>,
        /// Arrivals that have not come.
        missing: u16,
        /// Arrivals of a phase.
        arrivals: u16,
    },

    /// A lane takes part in a warp operation whose mask does not name it.
    #[error("{kernel}: block {block}: {waiting}, which is not in its own mask")]
    NotInMask {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// The thread.
        waiting: Box<Waiting>,
    },

    /// A warp operation names a lane that waits somewhere else.
    #[error("{kernel}: block {block}: warp mismatch: {first}, but {second}")]
    WarpMismatch {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// A thread in a warp operation.
        first: Box<Waiting>,
        /// A thread that its mask names and that waits for something else.
        second: Box<Waiting>,
    },

    /// A warp operation names a lane that has returned.
    #[error(
        "{kernel}: block {block}: {waiting}, but thread {exited}, which the mask names, has exited"
    )]
    WarpAfterExit {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// A thread in a warp operation.
        waiting: Box<Waiting>,
        /// The thread that has returned.
        exited: Index,
    },

    /// A thread of a kernel that may overlap the one before it has returned without waiting for that.
    #[error("{kernel}: block {block}: thread {thread} returned without wait_for_previous()")]
    NoWait {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// Index of the thread.
        thread: Index,
    },

    /// A kernel has stopped itself, or used a built-in wrongly.
    #[error("{kernel}: block {block}: thread {thread}: {reason} at {location}")]
    Trap {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// Index of the thread.
        thread: Index,
        /// The failed assertion, or what was wrong.
        reason: String,
        /// Source file and line.
        location: String,
    },

    /// A block declares more shared memory than any device has.
    #[error("{kernel}: block {block}: no room for the shared array {array} of {bytes} bytes")]
    SharedExhausted {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// Name of the array.
        array: String,
        /// Its size.
        bytes: u64,
    },

    /// A block wrote past the end of a shared array.
    #[error(
        "{kernel}: block {block}: wrote outside shared memory, {offset} bytes after the start of {array}"
    )]
    SharedOverrun {
        /// Name of the kernel.
        kernel: String,
        /// Index of the block.
        block: Index,
        /// Name of the array before the changed byte.
        array: String,
        /// Distance of the changed byte from the start of the array.
        offset: u64,
    },

    /// A kernel wrote outside a buffer.
    #[error("{kernel}: wrote outside buffer {buffer}: at byte {offset} of {bytes}")]
    Overrun {
        /// Name of the kernel.
        kernel: String,
        /// Name of the buffer, or its binding number.
        buffer: String,
        /// Offset of the first changed byte from the start of the allocation; negative before it.
        offset: i64,
        /// Size of the allocation.
        bytes: u64,
    },

    /// Two runs in different orders, or with different poison in shared memory, gave different results.
    #[error(
        "{kernel}: buffer {buffer} depends on the order of threads or on uninitialised memory: byte {offset} is {first:#04x} or {second:#04x}"
    )]
    NotDeterministic {
        /// Name of the kernel.
        kernel: String,
        /// Name of the buffer, or its binding number.
        buffer: String,
        /// The first byte that differs, from the start of the allocation.
        offset: u64,
        /// Its value in the first run.
        first: u8,
        /// Its value in the second run.
        second: u8,
    },

    /// A kernel changed a buffer that its contract says it only reads.
    #[error("{kernel}: changed byte {offset} of buffer {buffer}, which it may only read")]
    ReadOnlyChanged {
        /// Name of the kernel.
        kernel: String,
        /// Name of the buffer.
        buffer: String,
        /// The first byte that changed, from the start of the allocation.
        offset: u64,
    },

    /// Another dispatch uses the buffer, and one of the two writes to it.
    #[error("a buffer of {bytes} bytes is in use by another dispatch")]
    Busy {
        /// Size of the allocation.
        bytes: u64,
    },

    /// A range that is not inside its buffer.
    #[error("bytes {start}..{end} are not inside a buffer of {bytes} bytes")]
    Range {
        /// First byte.
        start: u64,
        /// Byte after the last one.
        end: u64,
        /// Size of the buffer.
        bytes: u64,
    },
}

/// Three-dimensional index of a block or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index(pub [u32; 3]);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "({x}, {y}, {z})")
    }
}

/// Parameters of a kernel entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Number of buffers.
    pub buffers: u64,
    /// Size of the push struct.
    pub push_bytes: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} buffers and {} push bytes",
            self.buffers, self.push_bytes
        )
    }
}

/// A thread that waits for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Index of the thread.
    pub thread: Index,
    /// The barrier or warp operation.
    pub operation: String,
    /// The lanes that a warp operation names.
    pub mask: Option<u32>,
    /// Source file and line.
    pub location: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting {
            thread,
            operation,
            location,
            ..
        } = self;
        write!(f, "thread {thread} waits in {operation}")?;
        if let Some(mask) = self.mask {
            write!(f, " of lanes {mask:#010x}")?;
        }
        write!(f, " at {location}")
    }
}
