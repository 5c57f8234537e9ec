//! Global memory: allocations with guard zones around them, and the handles that bind ranges of them.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::abi;
use crate::error::EmulatorError;

/// Alignment of an allocation, that of the CUDA driver.
const ALIGN: usize = 256;

/// Bytes before and after an allocation that no kernel may change.
const GUARD: usize = 4096;

/// A range of emulated global memory. A handle: clones and slices share the memory, which is freed with the last one.
#[derive(Debug, Clone)]
pub struct Buffer {
    memory: Option<Arc<Memory>>,
    start: usize,
    bytes: usize,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Start of the guard zone before the memory.
    raw: NonNull<u8>,
    bytes: usize,
    guard: u8,
    /// Number of readers, or -1 while something writes.
    users: AtomicI64,
}

// SAFETY: the memory is owned, and `users` keeps writers alone.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The right to use an allocation until it is dropped.
pub(crate) struct Use<'a> {
    memory: &'a Memory,
    write: bool,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        if self.write {
            self.memory.users.store(0, Ordering::Release);
        } else {
            self.memory.users.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Memory {
    fn layout(bytes: usize) -> Option<Layout> {
        let padded = bytes.checked_add(2 * GUARD)?;
        Layout::from_size_align(padded, ALIGN).ok()
    }

    fn new(bytes: usize, poison: u8) -> Option<Memory> {
        let layout = Memory::layout(bytes)?;
        let guard = poison ^ 0x5a;
        // SAFETY: the layout is not empty.
        let raw = NonNull::new(unsafe { alloc::alloc(layout) })?;
        let memory = Memory {
            raw,
            bytes,
            guard,
            users: AtomicI64::new(0),
        };
        // SAFETY: all three ranges lie in the new allocation.
        unsafe {
            raw.as_ptr().write_bytes(guard, GUARD);
            memory.start().write_bytes(poison, bytes);
            memory.start().add(bytes).write_bytes(guard, GUARD);
        }
        memory.set_guards_accessible(false);
        Some(memory)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: the memory starts one guard zone after the allocation.
        unsafe { self.raw.as_ptr().add(GUARD) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn set_guards_accessible(&self, accessible: bool) {
        abi::set_accessible(self.raw.as_ptr(), GUARD, accessible);
        // SAFETY: the second guard zone starts where the memory ends.
        abi::set_accessible(unsafe { self.start().add(self.bytes) }, GUARD, accessible);
    }

    /// Takes the right to use the memory, or says that something else uses it.
    pub(crate) fn use_for(&self, write: bool) -> Result<Use<'_>, EmulatorError> {
        let taken = if write {
            self.users
                .compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        } else {
            self.users
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, |users| {
                    (users >= 0).then_some(users + 1)
                })
                .is_ok()
        };
        if taken {
            Ok(Use {
                memory: self,
                write,
            })
        } else {
            Err(EmulatorError::Busy {
                bytes: self.bytes as u64,
            })
        }
    }

    fn wait_for(&self, write: bool) -> Use<'_> {
        loop {
            if let Ok(access) = self.use_for(write) {
                return access;
            }
            std::thread::yield_now();
        }
    }

    /// Offset from the memory's start of the first byte of a guard zone that has changed, which is repaired.
    pub(crate) fn overrun(&self) -> Option<i64> {
        let zones = [(-(GUARD as i64)), self.bytes as i64];
        let mut first = None;
        for zone in zones {
            for at in zone..zone + GUARD as i64 {
                // SAFETY: the guard zones belong to the allocation, and no kernel runs on it now.
                unsafe {
                    let byte = self.start().offset(at as isize);
                    if byte.read() != self.guard {
                        byte.write(self.guard);
                        first = first.or(Some(at));
                    }
                }
            }
        }
        first
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.set_guards_accessible(true);
        if let Some(layout) = Memory::layout(self.bytes) {
            // SAFETY: the allocation was made with this layout, and no handle is left.
            unsafe { alloc::dealloc(self.raw.as_ptr(), layout) };
        }
    }
}

impl Buffer {
    /// Memory of `bytes` bytes, every one of them `poison`. `None` if there is not that much.
    pub(crate) fn new(bytes: usize, poison: u8) -> Option<Buffer> {
        Some(Buffer {
            memory: Some(Arc::new(Memory::new(bytes, poison)?)),
            start: 0,
            bytes,
        })
    }

    /// What to bind where a contract allows that nothing is bound.
    pub fn unbound() -> Buffer {
        Buffer {
            memory: None,
            start: 0,
            bytes: 0,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The part of this buffer with these byte offsets.
    ///
    /// Guard zones surround allocations, not slices: a kernel that leaves a slice but not its allocation goes unseen.
    pub fn slice(&self, range: Range<u64>) -> Result<Buffer, EmulatorError> {
        self.check(&range)?;
        Ok(Buffer {
            memory: self.memory.clone(),
            start: self.start + range.start as usize,
            bytes: (range.end - range.start) as usize,
        })
    }

    fn check(&self, range: &Range<u64>) -> Result<(), EmulatorError> {
        if range.start <= range.end && range.end <= self.bytes() {
            return Ok(());
        }
        Err(EmulatorError::Range {
            start: range.start,
            end: range.end,
            bytes: self.bytes(),
        })
    }

    /// Replaces the first bytes by `data`. Waits until no dispatch uses the memory.
    pub fn write(&self, data: &[u8]) -> Result<(), EmulatorError> {
        self.check(&(0..data.len() as u64))?;
        if let Some(memory) = &self.memory {
            let _alone = memory.wait_for(true);
            // SAFETY: the range was checked, and nothing else uses the memory.
            unsafe {
                self.address()
                    .copy_from_nonoverlapping(data.as_ptr(), data.len());
            }
        }
        Ok(())
    }

    /// A copy of the contents. Waits until no dispatch writes to the memory.
    pub fn read(&self) -> Vec<u8> {
        let mut data = vec![0; self.bytes];
        if let Some(memory) = &self.memory {
            let _shared = memory.wait_for(false);
            // SAFETY: the handle's range lies in the memory, and nothing writes to it.
            unsafe {
                self.address()
                    .copy_to_nonoverlapping(data.as_mut_ptr(), self.bytes);
            }
        }
        data
    }

    /// Address of the first byte, null if unbound.
    pub(crate) fn address(&self) -> *mut u8 {
        match &self.memory {
            // SAFETY: the handle's range lies in the memory.
            Some(memory) => unsafe { memory.start().add(self.start) },
            None => std::ptr::null_mut(),
        }
    }

    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// The same range of a copy of the allocation.
    pub(crate) fn moved_to(&self, whole: &Buffer) -> Buffer {
        Buffer {
            memory: whole.memory.clone(),
            start: self.start,
            bytes: self.bytes,
        }
    }

    /// The whole allocation that this is a part of.
    pub(crate) fn whole(&self) -> Buffer {
        Buffer {
            memory: self.memory.clone(),
            start: 0,
            bytes: self.memory.as_ref().map_or(0, |memory| memory.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_the_memory_and_refuse_ranges_outside() {
        let whole = Buffer::new(10, 0xff).unwrap();
        let part = whole.slice(2..6).unwrap();
        part.write(&[1, 2, 3, 4]).unwrap();
        assert_eq!(whole.read(), [255, 255, 1, 2, 3, 4, 255, 255, 255, 255]);
        assert!(matches!(
            part.slice(0..5),
            Err(EmulatorError::Range { end: 5, .. })
        ));
        assert!(part.write(&[0; 5]).is_err());
        assert_eq!(whole.address() as usize % ALIGN, 0);
    }

    #[test]
    fn a_writer_excludes_everything_and_readers_exclude_writers() {
        let buffer = Buffer::new(4, 0).unwrap();
        let memory = buffer.memory().unwrap();
        let reader = memory.use_for(false).unwrap();
        let second = memory.use_for(false).unwrap();
        assert!(memory.use_for(true).is_err());
        drop((reader, second));
        let writer = memory.use_for(true).unwrap();
        assert!(memory.use_for(false).is_err());
        drop(writer);
        assert!(memory.use_for(true).is_ok());
    }

    #[test]
    fn more_memory_than_there_can_be_is_no_panic() {
        assert!(Buffer::new(usize::MAX - 100, 0).is_none());
    }
}
