//! What recorded work writes: it is refused once one of these buffers has become constant.

use std::sync::atomic::{AtomicU64, Ordering};

use zinc_contract::Kernel;

use crate::buffer::{Buffer, BufferError, BufferSlice, made_constant};
use crate::dispatch::{self, DispatchError};

/// A buffer and what writes it first: a kernel and its parameter, or a copy or fill, which has no names.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    buffer: Buffer,
    kernel: &'static str,
    parameter: &'static str,
}

impl Written {
    /// Why the work is refused.
    #[cold]
    pub(crate) fn refused(&self) -> DispatchError {
        DispatchError::Buffer {
            kernel: self.kernel,
            buffer: self.parameter,
            source: BufferError::Constant,
        }
    }
}

/// The buffers that a command list, a capture or a graph writes, each once.
#[derive(Debug)]
pub(crate) struct Writes {
    written: Vec<Written>,
    /// What `made_constant` was when none of them was constant.
    looked: AtomicU64,
}

impl Writes {
    pub(crate) fn new() -> Self {
        Self {
            written: Vec::new(),
            looked: AtomicU64::new(0),
        }
    }

    /// What a dispatch writes.
    pub(crate) fn add_dispatch(&mut self, kernel: &'static Kernel, buffers: &[BufferSlice<'_>]) {
        for (at, slice) in buffers.iter().enumerate() {
            if let (Some(buffer), true) = (slice.buffer(), dispatch::writes(kernel, at)) {
                self.push(buffer, kernel.name, kernel.buffers[at].name);
            }
        }
    }

    /// The target of a copy or fill.
    pub(crate) fn add(&mut self, to: BufferSlice<'_>) {
        if let Some(buffer) = to.buffer() {
            self.push(buffer, "", "");
        }
    }

    /// What other recorded work writes.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for written in &other.written {
            self.push(&written.buffer, written.kernel, written.parameter);
        }
    }

    fn push(&mut self, buffer: &Buffer, kernel: &'static str, parameter: &'static str) {
        if !self.written.iter().any(|written| written.buffer.is(buffer)) {
            self.written.push(Written {
                buffer: buffer.clone(),
                kernel,
                parameter,
            });
            *self.looked.get_mut() = 0;
        }
    }

    /// One of them that is constant. Costs a comparison as long as no buffer became constant since the last call.
    #[inline]
    pub(crate) fn constant(&self) -> Option<&Written> {
        let now = made_constant();
        if self.looked.load(Ordering::Relaxed) == now {
            return None;
        }
        self.look(now)
    }

    #[cold]
    fn look(&self, now: u64) -> Option<&Written> {
        let found = self
            .written
            .iter()
            .find(|written| written.buffer.is_constant());
        if found.is_none() {
            self.looked.store(now, Ordering::Relaxed);
        }
        found
    }
}
