//! The stacks that threads of a block run on.

use corosensei::stack::{DefaultStack, Stack, StackPointer};

/// Bytes of a stack. Only the pages that a kernel touches cost memory; unoptimised and instrumented builds need many
/// more of them than others.
const BYTES: usize = 256 * 1024;

/// Distance between the tops of stacks that follow each other, beyond whole pages, and the number of different tops.
/// Threads of a block use the same depth of stack at the same time: with equal page offsets they would all compete for
/// the same few sets of the first-level cache.
const SHIFT: usize = 320;
const SHIFTS: usize = 24;

/// A guarded stack that starts a little below the top of its memory.
pub(crate) struct ThreadStack {
    memory: DefaultStack,
    shift: usize,
}

impl ThreadStack {
    /// The stack of the `index`th coroutine of an OS thread.
    pub(crate) fn new(index: usize) -> std::io::Result<ThreadStack> {
        Ok(ThreadStack {
            memory: DefaultStack::new(BYTES + SHIFT * SHIFTS)?,
            shift: index % SHIFTS * SHIFT,
        })
    }

    /// The usable memory: lowest address and size.
    pub(crate) fn usable(&self) -> (*mut u8, usize) {
        let lowest = self.base().get() - BYTES;
        (lowest as *mut u8, BYTES)
    }
}

// SAFETY: the memory is a guarded stack; the base stays at least `BYTES` above its guard page and keeps its alignment
// because the shift is a multiple of 16.
unsafe impl Stack for ThreadStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.memory.base().get() - self.shift).unwrap_or(self.memory.base())
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
