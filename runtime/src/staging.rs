//! Pinned staging memory: bounded buffers through which any amount of host data flows to and from the device.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use memmap2::{Mmap, UncheckedAdvice};

use crate::buffer::{BufferError, BufferSlice};
use crate::device::Device;
use crate::error::CudaError;
use crate::ffi;
use crate::queue::Holds;
use crate::stream::{Event, Stream};

/// Where one small upload starts behind another in a slot: what the copy engines like.
const PACKING: usize = 256;

/// How much pinned host memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingOptions {
    /// Pinned buffers; at least 2 let the host fill one while the device empties another.
    pub slots: usize,
    /// Bytes of each.
    pub slot_bytes: usize,
}

impl Default for StagingOptions {
    /// 64 MiB: 4 buffers of 16 MiB.
    fn default() -> Self {
        Self {
            slots: 4,
            slot_bytes: 16 << 20,
        }
    }
}

/// Why an upload or download stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A slice is wrong.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A driver call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The file or reader failed, or ended early.
    #[error("only {done} of {wanted} bytes were read")]
    Read {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes read before it failed.
        done: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The range reaches past the end of the map.
    #[error("bytes {}..{} are outside a map of {bytes} bytes", range.start, range.end)]
    MapRange {
        /// What was asked for.
        range: Range<usize>,
        /// Bytes of the map.
        bytes: usize,
    },
}

/// Page-locked host memory.
#[derive(Debug)]
struct Pinned {
    device: Device,
    address: NonNull<u8>,
}

impl Pinned {
    fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the context is open.
        ffi::call(|error| unsafe {
            ffi::zinc_pinned_alloc(device.raw(), bytes as u64, &mut address, error)
        })?;
        Ok(Self {
            device: device.clone(),
            address: NonNull::new(address.cast()).expect("the shim returns memory on success"),
        })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the slot that owns the memory waited for the copies that use it.
        let freed = ffi::call(|error| unsafe {
            ffi::zinc_pinned_free(self.device.raw(), self.address.as_ptr().cast(), error)
        });
        if let Err(error) = freed {
            tracing::debug!(%error, "pinned memory not freed");
        }
    }
}

/// One pinned buffer, and the event behind the copies that use it.
#[derive(Debug)]
struct Slot {
    memory: Pinned,
    /// Bytes taken since the slot was last free.
    used: usize,
    done: Event,
    /// Whether `done` stands behind copies that may be unfinished.
    in_flight: bool,
}

/// Pinned buffers used in turn.
#[derive(Debug)]
pub(crate) struct Staging {
    device: Device,
    slots: Vec<Slot>,
    slot_bytes: usize,
    current: usize,
}

// SAFETY: the pinned memory is owned by its slot and reached through `&mut self` only.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(device: &Device, options: StagingOptions) -> Result<Self, CudaError> {
        let slot_bytes = options.slot_bytes.max(PACKING).next_multiple_of(PACKING);
        let slots = (0..options.slots.max(1)).map(|_| {
            Ok(Slot {
                memory: Pinned::new(device, slot_bytes)?,
                used: 0,
                done: Event::untimed(device)?,
                in_flight: false,
            })
        });
        Ok(Self {
            device: device.clone(),
            slots: slots.collect::<Result<_, CudaError>>()?,
            slot_bytes,
            current: 0,
        })
    }

    /// Copies host bytes to a slice of the same length on `stream`; the bytes are copied before this returns.
    pub(crate) fn write(
        &mut self,
        stream: &Stream,
        to: BufferSlice<'_>,
        data: &[u8],
    ) -> Result<(), CudaError> {
        let mut rest = data;
        self.stream_in(stream, to, |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
            Ok::<(), CudaError>(())
        })
    }

    /// Fills the slice from parts that `fill` writes, in order. After an error a beginning of the slice is written.
    fn stream_in<E: From<CudaError>>(
        &mut self,
        stream: &Stream,
        to: BufferSlice<'_>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        while at < to.bytes() {
            let (slot, offset, bytes) = self.room(to.bytes() - at)?;
            let address = self.slots[slot].memory.address;
            // SAFETY: the part lies in the slot's memory, which came from the driver as plain bytes, and no copy uses it: the
            // slot was waited for, and parts handed out since then lie before it.
            let part =
                unsafe { std::slice::from_raw_parts_mut(address.as_ptr().add(offset), bytes) };
            fill(part)?;
            // SAFETY: context and stream are open; the slot is not reused or freed before its event is done.
            ffi::call(|error| unsafe {
                ffi::zinc_copy_to_device(
                    self.device.raw(),
                    stream.raw(),
                    to.address() + at,
                    part.as_ptr().cast(),
                    bytes as u64,
                    error,
                )
            })?;
            self.took(stream, slot, offset + bytes)?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// A free part of at most `wanted` bytes: slot, offset and length. Waits for the device where every slot is in use.
    fn room(&mut self, wanted: u64) -> Result<(usize, usize, usize), CudaError> {
        if self.slots[self.current].used == self.slot_bytes {
            self.current = (self.current + 1) % self.slots.len();
            self.reclaim(self.current)?;
        }
        let slot = &self.slots[self.current];
        let free = self.slot_bytes - slot.used;
        let bytes = usize::try_from(wanted).unwrap_or(usize::MAX).min(free);
        Ok((self.current, slot.used, bytes))
    }

    /// Notes that a copy on `stream` uses a slot up to `end`.
    fn took(&mut self, stream: &Stream, slot: usize, end: usize) -> Result<(), CudaError> {
        let slot_bytes = self.slot_bytes;
        let slot = &mut self.slots[slot];
        slot.used = end.next_multiple_of(PACKING).min(slot_bytes);
        slot.in_flight = true;
        slot.done.record(stream).inspect_err(|_| {
            // Without the mark, only the end of the stream says that the copy is over.
            let _ = stream.synchronize();
        })
    }

    /// Waits until no copy uses the slot.
    fn reclaim(&mut self, slot: usize) -> Result<(), CudaError> {
        let slot = &mut self.slots[slot];
        if std::mem::replace(&mut slot.in_flight, false) {
            slot.done.wait()?;
        }
        slot.used = 0;
        Ok(())
    }

    /// Copies a slice into host memory of the same length on `stream`, and waits for it.
    pub(crate) fn read(
        &mut self,
        stream: &Stream,
        from: BufferSlice<'_>,
        data: &mut [u8],
    ) -> Result<(), CudaError> {
        let mut rest = data;
        self.stream_out(stream, from, |part| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.len());
            now.copy_from_slice(part);
            rest = later;
            Ok::<(), CudaError>(())
        })
    }

    /// Hands the slice's bytes to `take` in parts, in order, while the next parts are on their way.
    fn stream_out<E: From<CudaError>>(
        &mut self,
        stream: &Stream,
        from: BufferSlice<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let parts = from.bytes().div_ceil(self.slot_bytes as u64);
        let ahead = self.slots.len() as u64;
        for slot in 0..self.slots.len() {
            self.reclaim(slot)?;
        }
        let slot_bytes = self.slot_bytes as u64;
        let bytes = |part: u64| (from.bytes() - part * slot_bytes).min(slot_bytes);
        for step in 0..parts + ahead {
            if let Some(part) = step.checked_sub(ahead).filter(|part| *part < parts) {
                let slot = (part % ahead) as usize;
                self.reclaim(slot)?;
                let address = self.slots[slot].memory.address;
                // SAFETY: the copy into this part of the slot is done, and the next one is not submitted yet.
                take(unsafe {
                    std::slice::from_raw_parts(address.as_ptr(), bytes(part) as usize)
                })?;
            }
            if step < parts {
                let slot = (step % ahead) as usize;
                let length = bytes(step);
                // SAFETY: context and stream are open; the slot is free, and not reused or freed before its event is done.
                ffi::call(|error| unsafe {
                    ffi::zinc_copy_to_host(
                        self.device.raw(),
                        stream.raw(),
                        self.slots[slot].memory.address.as_ptr().cast(),
                        from.address() + step * slot_bytes,
                        length,
                        error,
                    )
                })?;
                self.took(stream, slot, self.slot_bytes)?;
            }
        }
        self.current = 0;
        for slot in 0..self.slots.len() {
            self.reclaim(slot)?;
        }
        Ok(())
    }

    /// Waits until no copy uses any slot.
    fn drain(&mut self) -> Result<(), CudaError> {
        (0..self.slots.len()).try_for_each(|slot| self.reclaim(slot))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.drain() {
            tracing::debug!(%error, "staging dropped after a failure");
        }
    }
}

/// Streams large amounts of data to and from a device on a stream of its own, through a bounded amount of pinned memory.
///
/// Uploads run behind the caller: [`Uploader::finish`] waits for them, and buffers stay alive until then. They are not
/// ordered with a queue's work; finish, or let the queue [wait](crate::Queue::wait_for) for [`Uploader::event`].
#[derive(Debug)]
pub struct Uploader {
    staging: Staging,
    stream: Stream,
    holds: Holds,
}

impl Uploader {
    /// An uploader with 64 MiB of pinned memory.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Self::with_options(device, StagingOptions::default())
    }

    /// An uploader with a chosen amount of pinned memory.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn with_options(device: &Device, options: StagingOptions) -> Result<Self, CudaError> {
        Ok(Self {
            staging: Staging::new(device, options)?,
            stream: Stream::new(device)?,
            holds: Holds::new(),
        })
    }

    /// Uploads bytes to a slice of the same length; they are copied before this returns.
    ///
    /// # Errors
    /// A wrong slice, or a failure of the driver.
    pub fn upload(&mut self, to: BufferSlice<'_>, data: &[u8]) -> Result<(), TransferError> {
        self.prepare_target(to, data.len() as u64)?;
        self.staging.write(&self.stream, to, data)?;
        Ok(())
    }

    /// Fills a slice from a reader.
    ///
    /// # Errors
    /// A wrong slice, a reader that fails or ends early, or a failure of the driver.
    pub fn upload_from(
        &mut self,
        to: BufferSlice<'_>,
        reader: &mut impl Read,
    ) -> Result<(), TransferError> {
        self.prepare_target(to, to.bytes())?;
        let wanted = to.bytes();
        let mut done = 0;
        self.staging.stream_in(&self.stream, to, |part| {
            let read = reader.read_exact(part);
            read.map_err(|source| TransferError::Read {
                wanted,
                done,
                source,
            })?;
            done += part.len() as u64;
            Ok(())
        })
    }

    /// Fills a slice from a file, beginning at byte `offset` of the file. The file's position does not change.
    ///
    /// The bytes are read straight into pinned memory: host memory does not grow with the file.
    ///
    /// # Errors
    /// A wrong slice, a file that can't be read or ends early, or a failure of the driver.
    pub fn upload_file(
        &mut self,
        to: BufferSlice<'_>,
        file: &File,
        offset: u64,
    ) -> Result<(), TransferError> {
        self.prepare_target(to, to.bytes())?;
        let wanted = to.bytes();
        let mut done = 0;
        self.staging.stream_in(&self.stream, to, |part| {
            let read = file.read_exact_at(part, offset.saturating_add(done));
            read.map_err(|source| TransferError::Read {
                wanted,
                done,
                source,
            })?;
            done += part.len() as u64;
            Ok(())
        })
    }

    /// Uploads a range of a file's memory map, and gives its pages back to the system behind itself: host memory does not
    /// grow with the file.
    ///
    /// # Errors
    /// A wrong slice or range, or a failure of the driver.
    pub fn upload_map(
        &mut self,
        to: BufferSlice<'_>,
        map: &Mmap,
        range: Range<usize>,
    ) -> Result<(), TransferError> {
        let bytes = map.len();
        let data = map.get(range.clone()).ok_or(TransferError::MapRange {
            range: range.clone(),
            bytes,
        })?;
        self.prepare_target(to, data.len() as u64)?;
        let step = self.staging.slot_bytes;
        let (mut at, end) = (range.start, range.end);
        let mut slice = to;
        while at < end {
            let now = step.min(end - at);
            self.staging
                .write(&self.stream, slice.slice(..now as u64)?, &map[at..at + now])?;
            slice = slice.slice(now as u64..)?;
            // SAFETY: a read-only map of a file: pages that are dropped are read from the file again when touched.
            let dropped = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, now) };
            if let Err(error) = dropped {
                tracing::debug!(%error, "pages of the map not given back");
            }
            at += now;
        }
        Ok(())
    }

    /// Copies a slice into host memory of the same length, and waits for it.
    ///
    /// # Errors
    /// A wrong slice, or a failure of the driver.
    pub fn download(
        &mut self,
        from: BufferSlice<'_>,
        data: &mut [u8],
    ) -> Result<(), TransferError> {
        self.prepare(from, data.len() as u64)?;
        self.staging.read(&self.stream, from, data)?;
        Ok(())
    }

    /// An event behind everything uploaded so far, for [`Queue::wait_for`](crate::Queue::wait_for).
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn event(&self) -> Result<Event, CudaError> {
        let event = Event::untimed(self.stream.device())?;
        event.record(&self.stream)?;
        Ok(event)
    }

    /// Waits until every upload has arrived.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn finish(&mut self) -> Result<(), CudaError> {
        self.stream.synchronize()?;
        self.holds.clear();
        Ok(())
    }

    fn prepare_target(&mut self, to: BufferSlice<'_>, found: u64) -> Result<(), BufferError> {
        to.admit_target(self.stream.device(), None)?;
        self.prepare(to, found)
    }

    fn prepare(&mut self, slice: BufferSlice<'_>, found: u64) -> Result<(), BufferError> {
        slice.admit_bound(self.stream.device(), None)?;
        if slice.bytes() != found {
            return Err(BufferError::Length {
                wanted: slice.bytes(),
                found,
            });
        }
        self.holds.hold_slices(&[slice]);
        Ok(())
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::debug!(%error, "uploader dropped after a failure");
        }
    }
}
