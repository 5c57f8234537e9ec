//! The shared memory of the block that runs on an OS thread, with red zones between its arrays.

use crate::abi::{self, SharedKey};

/// Most shared memory of a block on any architecture, static and dynamic together.
pub(crate) const LIMIT: usize = 227 * 1024;

/// Bytes between two arrays.
const RED_ZONE: usize = 256;

/// Least alignment of an array.
const ALIGN: usize = 16;

/// Greatest alignment of an array.
const MAX_ALIGN: usize = 1024;

/// Most arrays of a block. Together with `LIMIT` this fixes the size of the memory.
const ARRAYS: usize = 64;

const BYTES: usize = LIMIT + (ARRAYS + 2) * (RED_ZONE + MAX_ALIGN);

/// A write to a red zone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun {
    /// The array before the red zone; `None` for the dynamic one.
    pub(crate) key: Option<*const SharedKey>,
    /// Offset of the first changed byte from the start of that array.
    pub(crate) offset: usize,
}

#[derive(Debug, Clone, Copy)]
struct Array {
    key: Option<*const SharedKey>,
    start: usize,
    bytes: usize,
}

/// The memory and the arrays that the running block has declared so far.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// Allocated once: kernels hold pointers into it.
    memory: *mut u8,
    arrays: Vec<Array>,
    used: usize,
    /// Sum of the arrays' sizes.
    bytes: usize,
    poison: u8,
}

impl SharedMemory {
    pub(crate) fn new() -> SharedMemory {
        let memory = Box::leak(vec![0u128; BYTES / 16].into_boxed_slice());
        SharedMemory {
            memory: memory.as_mut_ptr().cast(),
            arrays: Vec::with_capacity(ARRAYS),
            used: 0,
            bytes: 0,
            poison: 0,
        }
    }

    /// What red zones are filled with: reading one gives other values in runs with another poison.
    fn red(&self) -> u8 {
        self.poison ^ 0x5a
    }

    /// Starts a block with `dynamic_bytes` of dynamic shared memory, at most [`LIMIT`]; where that starts.
    pub(crate) fn start(&mut self, poison: u8, dynamic_bytes: usize) -> *mut u8 {
        self.poison = poison;
        self.arrays.clear();
        self.used = 0;
        self.bytes = 0;
        self.fill_red_zone();
        self.add(None, dynamic_bytes, ALIGN)
    }

    /// The block's array for a declaration, made and filled with poison at its first use. `None` when the block would
    /// have more shared memory than any device.
    pub(crate) fn array(&mut self, key: *const SharedKey) -> Option<*mut u8> {
        if let Some(array) = self.arrays.iter().find(|array| array.key == Some(key)) {
            // SAFETY: the array lies in the memory.
            return Some(unsafe { self.memory.add(array.start) });
        }
        // SAFETY: keys are C++ constants.
        let (bytes, align) = unsafe { ((*key).bytes as usize, (*key).align as usize) };
        if bytes > LIMIT - self.bytes || self.arrays.len() == ARRAYS || align > MAX_ALIGN {
            return None;
        }
        Some(self.add(Some(key), bytes, align.max(ALIGN)))
    }

    fn add(&mut self, key: Option<*const SharedKey>, bytes: usize, align: usize) -> *mut u8 {
        let address = self.memory as usize + self.used;
        let start = address.next_multiple_of(align) - self.memory as usize;
        // SAFETY: BYTES leaves room for LIMIT bytes in ARRAYS + 1 arrays with their red zones and alignment.
        let place = unsafe { self.memory.add(start) };
        self.arrays.push(Array { key, start, bytes });
        self.bytes += bytes;
        abi::set_accessible(place, bytes, true);
        // SAFETY: as above; no reference to the memory exists.
        unsafe { place.write_bytes(self.poison, bytes) };
        self.used = start + bytes;
        self.fill_red_zone();
        place
    }

    fn fill_red_zone(&mut self) {
        // SAFETY: as in `add`.
        let zone = unsafe { self.memory.add(self.used) };
        abi::set_accessible(zone, RED_ZONE, true);
        // SAFETY: as in `add`.
        unsafe { zone.write_bytes(self.red(), RED_ZONE) };
        abi::set_accessible(zone, RED_ZONE, false);
        self.used += RED_ZONE;
    }

    /// Bytes of shared memory of the block, red zones not included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends a block: the first byte, if any, that it wrote outside its arrays.
    pub(crate) fn finish(&self) -> Option<Overrun> {
        for array in &self.arrays {
            let end = array.start + array.bytes;
            for zone in 0..RED_ZONE {
                // SAFETY: the red zone after an array lies in the memory; only this thread uses it.
                if unsafe { self.memory.add(end + zone).read() } != self.red() {
                    return Some(Overrun {
                        key: array.key,
                        offset: array.bytes + zone,
                    });
                }
            }
        }
        None
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        abi::set_accessible(self.memory, BYTES, true);
        let words = std::ptr::slice_from_raw_parts_mut(self.memory.cast::<u128>(), BYTES / 16);
        // SAFETY: the memory comes from a leaked box of this type and length, and no block runs any more.
        drop(unsafe { Box::from_raw(words) });
    }
}
