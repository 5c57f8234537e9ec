//! Queues: dispatches and copies in order, committed as commands that can be waited for.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use zinc_contract::{Geometry, Kernel, MAX_BUFFERS};
use zinc_runtime::{BufferSlice, Queue, QueueOptions, StagingOptions, Token};

use crate::buffer::zcu_slice;
use crate::contract::{buffer_count_error, zcu_geometry, zcu_kernel, zcu_values};
use crate::device::zcu_library;
use crate::pointer::{bytes_to_write, free, lock, optional, out, out_handle, reference, values};
use crate::status::{Failure, guard, zcu_status};

/// A queue of work for one device. One thread at a time uses it.
#[derive(Debug)]
pub struct zcu_queue(Mutex<Queue>);

/// How a queue is made. What is 0 is the default.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct zcu_queue_options {
    /// Commands that may be pending at once; 64 by default.
    pub ring: u32,
    /// Pinned buffers for zcu_queue_write and zcu_queue_read, which allocate them when first used; 2 by default.
    pub staging_slots: u32,
    /// Bytes of each; 2 MiB by default.
    pub staging_slot_bytes: u64,
}

/// A committed command of a queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_token {
    /// Which queue.
    pub queue: u64,
    /// Which of its commands.
    pub command: u64,
}

/// Pinned memory beyond these is a mistake of units.
const MOST_SLOTS: u32 = 1024;
const MOST_SLOT_BYTES: u64 = 1 << 36;

/// Pinned memory in the caller's words, where 0 is the default.
pub(crate) fn staging(
    slots: u32,
    slot_bytes: u64,
    default: StagingOptions,
) -> Result<StagingOptions, Failure> {
    if slots > MOST_SLOTS || slot_bytes > MOST_SLOT_BYTES {
        return Err(Failure::argument(format!(
            "pinned memory of {slots} times {slot_bytes} bytes is not possible"
        ))
        .wanted(format_args!(
            "at most {MOST_SLOTS} times {MOST_SLOT_BYTES} bytes"
        )));
    }
    Ok(StagingOptions {
        slots: match slots {
            0 => default.slots,
            slots => slots as usize,
        },
        slot_bytes: match slot_bytes {
            0 => default.slot_bytes,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        },
    })
}

impl zcu_queue_options {
    fn read(options: Option<&Self>) -> Result<QueueOptions, Failure> {
        let given = options.copied().unwrap_or_default();
        let default = QueueOptions::default();
        Ok(QueueOptions {
            ring: match given.ring {
                0 => default.ring,
                ring => ring as usize,
            },
            staging: staging(
                given.staging_slots,
                given.staging_slot_bytes,
                default.staging,
            )?,
        })
    }
}

/// The buffers of a dispatch.
pub(crate) struct Bound<'a> {
    slices: [BufferSlice<'a>; MAX_BUFFERS],
    count: usize,
}

impl<'a> Bound<'a> {
    /// Resolves the slices that a caller binds.
    ///
    /// # Safety
    /// Their buffers are null or handles that live during `'a`.
    pub(crate) unsafe fn resolve(
        kernel: &'static Kernel,
        given: &[zcu_slice],
    ) -> Result<Self, Failure> {
        if given.len() > MAX_BUFFERS {
            return Err(buffer_count_error(kernel, given.len()).into());
        }
        let mut slices = [BufferSlice::UNBOUND; MAX_BUFFERS];
        for (at, (slice, given)) in slices.iter_mut().zip(given).enumerate() {
            // SAFETY: the caller vouches for the handles.
            *slice = unsafe { given.resolve() }.map_err(|failure| {
                let buffer = kernel.buffers.get(at).map_or("", |buffer| buffer.name);
                failure
                    .about(format_args!("kernel {}: buffer {buffer}", kernel.name))
                    .kernel(kernel.name)
                    .buffer(buffer)
            })?;
        }
        Ok(Self {
            slices,
            count: given.len(),
        })
    }

    pub(crate) fn slices(&self) -> &[BufferSlice<'a>] {
        &self.slices[..self.count]
    }
}

/// A queue on a stream of its own. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_create(
    library: *const zcu_library,
    options: *const zcu_queue_options,
    queue: *mut *mut zcu_queue,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, inputs and outputs.
        let (out, library, options) = unsafe {
            (
                out_handle(queue, "queue")?,
                reference(library, "library")?,
                optional(options, "options")?,
            )
        };
        let options = zcu_queue_options::read(options)?;
        let queue = Queue::with_options(library.library(), options)?;
        out.put(zcu_queue(Mutex::new(queue)));
        Ok(())
    })
}

/// A queue on a CUstream of the caller (NULL: the null stream), which has to outlive it. The stream's work runs in the order
/// in which it is submitted, whoever submits it. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_from_stream(
    library: *const zcu_library,
    stream: *mut c_void,
    options: *const zcu_queue_options,
    queue: *mut *mut zcu_queue,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, inputs and outputs.
        let (out, library, options) = unsafe {
            (
                out_handle(queue, "queue")?,
                reference(library, "library")?,
                optional(options, "options")?,
            )
        };
        let options = zcu_queue_options::read(options)?;
        // SAFETY: the caller vouches for the stream, as this function asks.
        let queue = unsafe { Queue::from_raw_stream(library.library(), stream, options) }?;
        out.put(zcu_queue(Mutex::new(queue)));
        Ok(())
    })
}

/// Frees a queue; NULL is nothing. Waits for its work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_free(queue: *mut zcu_queue) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(queue) }
}

/// The CUstream, for other CUDA clients.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_stream(
    queue: *const zcu_queue,
    stream: *mut *mut c_void,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (reference(queue, "queue")?, out(stream, "stream")?) };
        out.put(queue.lock()?.raw_stream());
        Ok(())
    })
}

impl zcu_queue {
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Queue>, Failure> {
        lock(&self.0, "queue")
    }
}

/// The queue behind a handle, for the time of one call.
///
/// # Safety
/// The handle is null or lives during `'a`.
pub(crate) unsafe fn locked<'a>(queue: *const zcu_queue) -> Result<MutexGuard<'a, Queue>, Failure> {
    // SAFETY: the caller vouches for the handle.
    unsafe { reference(queue, "queue") }?.lock()
}

/// Opens a command. Work opens one by itself; this says where a command starts, and finds one that was forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_begin(queue: *mut zcu_queue) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        Ok(queue.begin()?)
    })
}

/// Dispatches a kernel: checks values and buffers against its contract, works out grid, block and shared memory, and
/// launches. What is refused never reaches the device. buffers are in binding order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_dispatch(
    queue: *mut zcu_queue,
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    buffers: *const zcu_slice,
    buffer_count: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (queue, kernel, given, slices) = unsafe {
            (
                locked(queue)?,
                reference(kernel, "kernel")?.contract(),
                reference(values, "values")?,
                crate::pointer::values(buffers, buffer_count, "buffers")?,
            )
        };
        // SAFETY: as above.
        let (words, bound) = unsafe { (given.words(kernel)?, Bound::resolve(kernel, slices)?) };
        Ok(queue.dispatch(kernel, &words, bound.slices())?)
    })
}

/// Launches a kernel without the checks of its contract: words is the complete push struct (zcu_kernel_words), geometry what
/// zcu_kernel_geometry gives for it, the loaded image and this device; a grid of zeros launches nothing. A dispatch that
/// zcu_kernel_check refuses, or a geometry that is not the kernel's, reads or writes memory that it should not.
/// Buffers that the kernel writes must not be constant. Shared memory beyond 48 KiB has to be asked for by a checked dispatch
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_dispatch_unchecked(
    queue: *mut zcu_queue,
    kernel: *const zcu_kernel,
    geometry: *const zcu_geometry,
    words: *const u32,
    word_count: usize,
    buffers: *const zcu_slice,
    buffer_count: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (queue, kernel, geometry, words, slices) = unsafe {
            (
                locked(queue)?,
                reference(kernel, "kernel")?.contract(),
                reference(geometry, "geometry")?,
                values(words, word_count, "words")?,
                values(buffers, buffer_count, "buffers")?,
            )
        };
        // SAFETY: as above.
        let bound = unsafe { Bound::resolve(kernel, slices) }?;
        if geometry.grid.contains(&0) {
            return Ok(());
        }
        let geometry = Geometry {
            grid: geometry.grid,
            block: geometry.block,
            cluster: geometry.cluster,
            shared_bytes: geometry.shared_bytes,
        };
        // SAFETY: the caller vouches for geometry, words and buffers, as this function asks.
        Ok(unsafe { queue.dispatch_unchecked(kernel, geometry, words, bound.slices()) }?)
    })
}

/// Commits the open command and waits until it, and so everything before it, is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_commit(queue: *mut zcu_queue) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        Ok(queue.commit_and_wait()?)
    })
}

/// Commits the open command. Where the ring is full, waits for the oldest pending one first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_commit_async(
    queue: *mut zcu_queue,
    token: *mut zcu_token,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (locked(queue)?, out(token, "token")?) };
        out.put(queue.commit_async()?.into());
        Ok(())
    })
}

/// Commits the open command. Where the ring is full, fails with ZCU_STATUS_RING_FULL: the command stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_try_commit_async(
    queue: *mut zcu_queue,
    token: *mut zcu_token,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (locked(queue)?, out(token, "token")?) };
        out.put(queue.try_commit_async()?.into());
        Ok(())
    })
}

impl From<Token> for zcu_token {
    fn from(token: Token) -> Self {
        let [queue, command] = token.to_raw();
        Self { queue, command }
    }
}

impl From<zcu_token> for Token {
    fn from(token: zcu_token) -> Self {
        Self::from_raw([token.queue, token.command])
    }
}

/// Waits for a command, and releases it and all before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_wait(queue: *mut zcu_queue, token: zcu_token) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        Ok(queue.wait(token.into())?)
    })
}

/// Whether a command is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_is_done(
    queue: *mut zcu_queue,
    token: zcu_token,
    done: *mut bool,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (locked(queue)?, out(done, "done")?) };
        out.put(queue.is_done(token.into())?);
        Ok(())
    })
}

/// Releases what finished commands keep alive, without waiting. count becomes how many commands; it may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_release_completed(
    queue: *mut zcu_queue,
    count: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        let released = queue.release_completed()?;
        if !count.is_null() {
            // SAFETY: the caller keeps the header's rules for outputs.
            unsafe { out(count, "count") }?.put(released);
        }
        Ok(())
    })
}

/// How many commands are committed and not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_pending(queue: *mut zcu_queue, count: *mut usize) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (locked(queue)?, out(count, "count")?) };
        out.put(queue.pending());
        Ok(())
    })
}

/// Waits until everything submitted is done, and releases all committed commands. The open command stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_synchronize(queue: *mut zcu_queue) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        Ok(queue.synchronize()?)
    })
}

/// Fills a slice with a byte, in order with the queue's other work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_fill(
    queue: *mut zcu_queue,
    to: zcu_slice,
    value: u8,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, to) = unsafe { (locked(queue)?, to.resolve()?) };
        Ok(queue.fill(to, value)?)
    })
}

/// Copies a slice to another of the same length, in order with the queue's other work. They must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_copy(
    queue: *mut zcu_queue,
    to: zcu_slice,
    from: zcu_slice,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, to, from) = unsafe { (locked(queue)?, to.resolve()?, from.resolve()?) };
        Ok(queue.copy(to, from)?)
    })
}

/// Uploads host bytes to a slice of the same length, in order with the queue's other work. The bytes are copied before it
/// returns. For model weights see zcu_uploader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_write(
    queue: *mut zcu_queue,
    to: zcu_slice,
    data: *const c_void,
    bytes: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (queue, to, data) = unsafe {
            (
                locked(queue)?,
                to.resolve()?,
                values(data.cast::<u8>(), bytes, "data")?,
            )
        };
        Ok(queue.write(to, data)?)
    })
}

/// Downloads a slice into host memory of the same length: waits for the queue's work before it, and for the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_read(
    queue: *mut zcu_queue,
    from: zcu_slice,
    data: *mut c_void,
    bytes: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, from, data) = unsafe {
            (
                locked(queue)?,
                from.resolve()?,
                bytes_to_write(data.cast::<u8>(), bytes, "data")?,
            )
        };
        Ok(queue.read(from, data)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_beyond_any_machine_is_refused() {
        let default = StagingOptions::default();
        for (slots, bytes) in [(MOST_SLOTS + 1, 1), (1, MOST_SLOT_BYTES + 1), (1, u64::MAX)] {
            let refused = staging(slots, bytes, default).map_err(Failure::keep);
            assert_eq!(refused, Err(zcu_status::InvalidArgument));
        }
        assert_eq!(staging(0, 0, default).ok(), Some(default));
    }
}
