//! The Rust side of include/zinc_emulator/thread.h: the layouts that both sides share and the functions of
//! cpp/runtime.cpp.

use std::ffi::{c_char, c_void};

/// Lanes of a warp.
pub(crate) const WARP: usize = 32;

/// Values of `Thread::wait`.
pub(crate) mod wait {
    /// Can run.
    pub(crate) const RUNNING: u32 = 0;
    /// Waits for lanes of its warp.
    pub(crate) const WARP: u32 = 1;
    /// Waits for its block.
    pub(crate) const BLOCK: u32 = 2;
    /// Has failed and never continues.
    pub(crate) const TRAP: u32 = 3;
    /// Has returned.
    pub(crate) const DONE: u32 = 4;
    /// Waits for the end of a phase.
    pub(crate) const PHASE: u32 = 5;
}

/// One CUDA thread.
#[repr(C)]
pub(crate) struct Thread {
    pub(crate) thread_idx: [u32; 3],
    pub(crate) lane: u32,
    pub(crate) block: *mut Block,
    pub(crate) wait: u32,
    pub(crate) mask: u32,
    pub(crate) collective: *const Collective,
    pub(crate) args: *mut c_void,
    pub(crate) what: *const c_char,
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
    pub(crate) value: u32,
    pub(crate) copies: *mut c_void,
    pub(crate) yielder: *const c_void,
    pub(crate) slot: u64,
    pub(crate) previous_ended: u64,
}

/// A phase barrier in shared memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    pub(crate) missing: u16,
    pub(crate) arrivals: u16,
    pub(crate) parity: u16,
    pub(crate) made: u16,
}

/// The block that runs on an OS thread.
#[repr(C)]
pub(crate) struct Block {
    pub(crate) block_idx: [u32; 3],
    pub(crate) block_dim: [u32; 3],
    pub(crate) grid_dim: [u32; 3],
    pub(crate) poison: u32,
    pub(crate) may_read_early: u32,
    pub(crate) dynamic_shared: *mut u8,
    pub(crate) suspend: unsafe extern "C" fn(*mut Thread),
    pub(crate) shared: unsafe extern "C" fn(*mut Block, *const SharedKey) -> *mut c_void,
    pub(crate) previous_ended: unsafe extern "C" fn(*mut Thread),
}

/// A warp operation; its address identifies it.
#[repr(C)]
pub(crate) struct Collective {
    pub(crate) name: *const c_char,
    pub(crate) run: unsafe extern "C" fn(*mut Lanes),
}

/// What a warp operation sees.
#[repr(C)]
pub(crate) struct Lanes {
    pub(crate) args: [*mut c_void; WARP],
    pub(crate) present: u32,
    pub(crate) poison: u32,
}

/// A statically declared shared array; its address identifies it.
#[repr(C)]
pub(crate) struct SharedKey {
    pub(crate) name: *const c_char,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

/// A kernel that the host's C++ compiler has compiled.
#[repr(C)]
pub struct Entry {
    pub(crate) run: unsafe extern "C" fn(buffers: *const *mut c_void, push: *const c_void),
    pub(crate) buffers: u32,
    pub(crate) push_bytes: u32,
}

unsafe extern "C" {
    pub(crate) fn zinc_emulator_current_slot() -> *mut *mut Thread;
    pub(crate) fn zinc_emulator_end_copies(copies: *mut c_void, finish: bool);
    fn zinc_emulator_set_accessible(start: *mut c_void, bytes: u64, accessible: bool);
    #[cfg(test)]
    fn zinc_emulator_layout(which: u32) -> u64;
}

/// Forbids or allows access to memory in a build with the address sanitizer; nothing otherwise.
pub(crate) fn set_accessible(start: *mut u8, bytes: usize, accessible: bool) {
    // SAFETY: the callers own the range; the function only marks it in the sanitizer's own memory.
    unsafe { zinc_emulator_set_accessible(start.cast(), bytes as u64, accessible) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_agree_with_the_cpp_header() {
        let mine = [
            size_of::<Thread>(),
            size_of::<Block>(),
            size_of::<Lanes>(),
            size_of::<SharedKey>(),
            size_of::<Entry>(),
            offset_of!(Thread, slot),
            offset_of!(Block, shared),
            size_of::<Phase>(),
            offset_of!(Phase, parity),
        ];
        for (which, size) in (0..).zip(mine) {
            // SAFETY: the function only reads its argument.
            let theirs = unsafe { zinc_emulator_layout(which) };
            assert_eq!(theirs, size as u64, "layout {which}");
        }
    }
}
