//! Device memory: whole buffers, and the slices of them that a dispatch binds.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zinc_contract::Binding;

use crate::device::Device;
use crate::error::CudaError;
use crate::ffi;

/// Why a buffer was not made or not sliced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The device has not enough free memory.
    #[error("no device memory for {wanted} bytes: {free} of {total} bytes are free")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Free bytes when it failed.
        free: u64,
        /// All bytes of the device.
        total: u64,
    },
    /// A range reaches past the end.
    #[error("bytes {start}..{end} are outside a buffer of {bytes} bytes")]
    Range {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// Source and destination of a copy differ in length.
    #[error("the destination has {found} bytes, wanted {wanted}")]
    Length {
        /// Bytes of the source.
        wanted: u64,
        /// Bytes of the destination.
        found: u64,
    },
    /// The slice binds nothing.
    #[error("the slice is unbound")]
    Unbound,
    /// The buffer lives in another context than the queue.
    #[error("the buffer belongs to another device or context")]
    WrongDevice,
    /// The slice was taken for one stream and is used on another, in a list or in a graph.
    #[error("the slice may be used only for immediate work on the stream that it was taken for")]
    OtherStream,
    /// The buffer was made constant, and would be written.
    #[error("the buffer is constant, and would be written")]
    Constant,
    /// A driver call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Grows whenever a buffer becomes constant, so that recorded work looks at what it writes only then. Begins above 0, which
/// stands for not looked yet.
static MADE_CONSTANT: AtomicU64 = AtomicU64::new(1);

/// How many times a buffer has become constant, and 1.
#[inline]
pub(crate) fn made_constant() -> u64 {
    MADE_CONSTANT.load(Ordering::Acquire)
}

#[derive(Debug)]
struct Allocation {
    device: Device,
    address: u64,
    bytes: u64,
    owned: bool,
    /// The command that last took a reference to this buffer, so that a command takes one and not one per dispatch.
    holder: AtomicU64,
    /// Whether nothing writes the memory any more.
    constant: AtomicBool,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the address came from zinc_memory_alloc, and commands that use it hold a reference.
        let freed = ffi::call(|error| unsafe {
            ffi::zinc_memory_free(self.device.raw(), self.address, error)
        });
        if let Err(error) = freed {
            tracing::debug!(%error, "device memory not freed");
        }
    }
}

/// Device memory. Cheap to clone; freed when the last clone and the last pending command that uses it are gone.
///
/// The contents are undefined until written. Addresses are multiples of 256.
#[derive(Debug, Clone)]
pub struct Buffer(Arc<Allocation>);

impl Device {
    /// Allocates `bytes` bytes of device memory, contents undefined.
    ///
    /// # Errors
    /// `OutOfMemory` with what is free, or another failure of the driver.
    pub fn buffer(&self, bytes: u64) -> Result<Buffer, BufferError> {
        let mut address = 0;
        // The driver refuses an allocation of nothing.
        let allocated = bytes.max(1);
        // SAFETY: the context is open.
        ffi::call(|error| unsafe {
            ffi::zinc_memory_alloc(self.raw(), allocated, &mut address, error)
        })
        .map_err(|error| match self.memory() {
            Ok((free, total)) if error.code == CudaError::OUT_OF_MEMORY => {
                BufferError::OutOfMemory {
                    wanted: bytes,
                    free,
                    total,
                }
            }
            _ => error.into(),
        })?;
        Ok(Buffer::new(self, address, bytes, true))
    }
}

impl Buffer {
    fn new(device: &Device, address: u64, bytes: u64, owned: bool) -> Self {
        Self(Arc::new(Allocation {
            device: device.clone(),
            address,
            bytes,
            owned,
            holder: AtomicU64::new(0),
            constant: AtomicBool::new(false),
        }))
    }

    /// A buffer around memory that someone else owns; dropping it frees nothing.
    ///
    /// # Safety
    /// `address` is device memory of `device`'s context with at least `bytes` bytes. It stays allocated until every clone of
    /// the buffer is gone and every command that was given one is done. It is not written where it is memory of another
    /// buffer that is constant.
    pub unsafe fn from_raw(device: &Device, address: u64, bytes: u64) -> Self {
        Self::new(device, address, bytes, false)
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The device address (`CUdeviceptr`), for other CUDA clients.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Promises that the contents stay as they are until the memory is freed: for weights, once they are uploaded. Waits until
    /// everything on the device is done. There is no way back.
    ///
    /// From then on, whatever would write any part of the buffer or of its clones is refused with [`BufferError::Constant`]:
    /// dispatches that bind it to a parameter that they write, fills, copies, writes and uploads to it, and command lists and
    /// graphs that were recorded before. In return, kernels that read their weights before the kernel ahead of them has ended
    /// ([`Kernel::early`](zinc_contract::Kernel::early)) always do so where these are constant; others they read so only where
    /// they directly follow a dispatch, on the same queue or in the same list or graph, that is bound to write none of them.
    ///
    /// The promise is the caller's where the runtime does not see who writes: no thread may give work that writes the buffer to
    /// a queue meanwhile, and other CUDA clients, unchecked dispatches, and other buffers and slices around the same memory
    /// must not write it afterwards.
    ///
    /// # Errors
    /// A failure of the driver or of queued work, as while a queue captures a graph: then the buffer is not constant.
    pub fn make_constant(&self) -> Result<(), CudaError> {
        if self.is_constant() {
            return Ok(());
        }
        self.device().synchronize()?;
        self.0.constant.store(true, Ordering::Release);
        MADE_CONSTANT.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether the buffer, or a clone of it, was [made constant](Buffer::make_constant).
    #[inline]
    pub fn is_constant(&self) -> bool {
        self.0.constant.load(Ordering::Acquire)
    }

    /// Whether both are clones of one buffer.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// All of it.
    pub fn all(&self) -> BufferSlice<'_> {
        BufferSlice {
            buffer: Some(self),
            address: self.0.address,
            bytes: self.0.bytes,
            stream: None,
        }
    }

    /// The bytes in `range`.
    ///
    /// # Errors
    /// `Range` where it reaches past the end or ends before it starts.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<BufferSlice<'_>, BufferError> {
        self.all().slice(range)
    }

    /// Whether `command` is the first to ask since another command did: then it has to take a reference.
    pub(crate) fn needs_holding(&self, command: u64) -> bool {
        self.0.holder.load(Ordering::Relaxed) != command
    }

    /// Notes that `command` holds a reference.
    pub(crate) fn set_holder(&self, command: u64) {
        self.0.holder.store(command, Ordering::Relaxed);
    }
}

/// A part of a buffer, bound to one parameter of a dispatch; or nothing, for an optional parameter.
#[derive(Debug, Clone, Copy)]
pub struct BufferSlice<'a> {
    buffer: Option<&'a Buffer>,
    address: u64,
    bytes: u64,
    /// The only stream that may use it, by its key: memory whose owner orders its freeing behind that stream.
    stream: Option<usize>,
}

impl<'a> BufferSlice<'a> {
    /// Binds nothing: address 0 and 0 bytes.
    pub const UNBOUND: BufferSlice<'static> = BufferSlice {
        buffer: None,
        address: 0,
        bytes: 0,
        stream: None,
    };

    /// Memory that no [`Buffer`] stands for. Commands take no reference to it, and it does not count as constant.
    ///
    /// # Safety
    /// `address` is device memory of the context of every queue that the slice is given to, with at least `bytes` bytes, and
    /// it stays allocated until every command that was given the slice is done. It is not written where it is memory of a
    /// constant buffer.
    pub const unsafe fn from_raw(address: u64, bytes: u64) -> Self {
        Self {
            buffer: None,
            address,
            bytes,
            stream: None,
        }
    }

    /// Memory that may be used on one stream only, and that nobody frees before the work given to it.
    ///
    /// # Safety
    /// As [`BufferSlice::from_raw`], for work that is submitted to `stream` during `'a`.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn for_stream(address: u64, bytes: u64, stream: usize) -> Self {
        Self {
            buffer: None,
            address,
            bytes,
            stream: Some(stream),
        }
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device address of the first byte; 0 where unbound.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether it binds nothing.
    pub fn is_unbound(&self) -> bool {
        self.address == 0
    }

    /// The bytes in `range` of this slice.
    ///
    /// # Errors
    /// `Range` where it reaches past the end or ends before it starts.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, BufferError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.bytes,
        };
        if start > end || end > self.bytes {
            let bytes = self.bytes;
            return Err(BufferError::Range { start, end, bytes });
        }
        Ok(Self {
            buffer: self.buffer,
            address: self.address + start,
            bytes: end - start,
            stream: self.stream,
        })
    }

    /// Whether it is a part of a constant buffer.
    #[inline]
    pub(crate) fn is_constant(&self) -> bool {
        self.buffer.is_some_and(Buffer::is_constant)
    }

    pub(crate) fn buffer(&self) -> Option<&'a Buffer> {
        self.buffer
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding {
            address: self.address,
            bytes: self.bytes,
        }
    }

    /// Whether the slice may be used in `device`'s context on `stream` (none: at any later time). Raw memory is vouched for
    /// by who made the slice.
    #[inline]
    pub(crate) fn admit(&self, device: &Device, stream: Option<usize>) -> Result<(), BufferError> {
        if self
            .buffer
            .is_some_and(|buffer| !buffer.device().same_context(device))
        {
            return Err(BufferError::WrongDevice);
        }
        if self.stream.is_some() && self.stream != stream {
            return Err(BufferError::OtherStream);
        }
        Ok(())
    }

    /// As [`BufferSlice::admit`], and it binds something.
    pub(crate) fn admit_bound(
        &self,
        device: &Device,
        stream: Option<usize>,
    ) -> Result<(), BufferError> {
        if self.is_unbound() {
            return Err(BufferError::Unbound);
        }
        self.admit(device, stream)
    }

    /// As [`BufferSlice::admit_bound`], and it may be written.
    pub(crate) fn admit_target(
        &self,
        device: &Device,
        stream: Option<usize>,
    ) -> Result<(), BufferError> {
        self.admit_bound(device, stream)?;
        match self.is_constant() {
            true => Err(BufferError::Constant),
            false => Ok(()),
        }
    }
}

impl<'a> From<&'a Buffer> for BufferSlice<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        buffer.all()
    }
}
