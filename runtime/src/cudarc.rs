//! cudarc's contexts, streams and slices as ours, and back, without a copy.
//!
//! [`CudarcQueue`] dispatches on a stream of cudarc. Its [`read`](CudarcQueue::read) and [`write`](CudarcQueue::write) take
//! slices and views for one dispatch and keep cudarc's own order of work: it waits for earlier users of the memory, and
//! later users and the freeing wait for the dispatch.
//!
//! cudarc opens the driver by itself and panics where it finds none: call [`Driver::load`](crate::Driver::load) first.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    SyncOnDrop, sys,
};

use crate::buffer::{Buffer, BufferError, BufferSlice};
use crate::device::{Device, DeviceError};
use crate::driver::Driver;
use crate::error::CudaError;
use crate::library::Library;
use crate::queue::{Queue, QueueOptions};
use crate::stream::{Stream, stream_key};

/// Why a conversion failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudarcError {
    /// cudarc's own search, which knows fewer places than ours, finds no driver library.
    #[error("cudarc finds no driver library: put the directory of {} on LD_LIBRARY_PATH", found.display())]
    NoLibrary {
        /// The library that our search found.
        found: std::path::PathBuf,
    },
    /// cudarc reported a failure.
    #[error("cudarc: {0:?}")]
    Cudarc(::cudarc::driver::DriverError),
    /// Both sides are of different contexts.
    #[error("the cudarc object belongs to another context than the device")]
    OtherContext,
    /// The context could not be wrapped.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A driver call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The buffer does not fit.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

impl From<::cudarc::driver::DriverError> for CudarcError {
    fn from(error: ::cudarc::driver::DriverError) -> Self {
        Self::Cudarc(error)
    }
}

impl Device {
    /// The device of a cudarc context, which stays alive as long as the device.
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn from_cudarc(driver: &Driver, context: &Arc<CudaContext>) -> Result<Self, CudarcError> {
        let raw = context.cu_ctx().cast();
        // SAFETY: the context is valid, and the device holds it.
        Ok(unsafe { Self::wrap(driver, raw, Some(context.clone())) }?)
    }

    /// The device's primary context for cudarc: the same one, retained once more.
    ///
    /// # Errors
    /// `NoLibrary` where cudarc would panic; `OtherContext` where the device is not around the primary context.
    pub fn to_cudarc(&self) -> Result<Arc<CudaContext>, CudarcError> {
        // SAFETY: opening the driver library runs its initializers, which are made for it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudarcError::NoLibrary {
                found: self.driver().path().to_owned(),
            });
        }
        let context = CudaContext::new(self.info().ordinal as usize)?;
        if context.cu_ctx().cast() != self.raw_context() {
            return Err(CudarcError::OtherContext);
        }
        Ok(context)
    }
}

/// A queue on a cudarc stream. Everything that a [`Queue`] does, in order with cudarc's own work on the stream.
///
/// ```no_run
/// # use zinc_runtime::{Library, cudarc::CudarcQueue};
/// # use cudarc::driver::{CudaSlice, CudaStream};
/// # fn run(library: &Library, stream: &std::sync::Arc<CudaStream>, a: &CudaSlice<f32>, b: &CudaSlice<f32>,
/// #        c: &mut CudaSlice<f32>) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = CudarcQueue::new(library, stream)?;
/// let (a, b, c) = (queue.read(a)?, queue.read(b)?, queue.write(c)?);
/// queue.dispatch(zinc_contract::kernel("vadd")?, &[1024], &[a.slice(), b.slice(), c.slice()])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CudarcQueue {
    queue: Queue,
    stream: Arc<CudaStream>,
}

impl CudarcQueue {
    /// A queue on `stream`, which stays alive as long as the queue.
    ///
    /// # Errors
    /// `OtherContext` where the stream's context is not the library's, or a failure of the driver.
    pub fn new(library: &Library, stream: &Arc<CudaStream>) -> Result<Self, CudarcError> {
        Self::with_options(library, stream, QueueOptions::default())
    }

    /// As [`CudarcQueue::new`].
    ///
    /// # Errors
    /// As there.
    pub fn with_options(
        library: &Library,
        stream: &Arc<CudaStream>,
        options: QueueOptions,
    ) -> Result<Self, CudarcError> {
        if stream.context().cu_ctx().cast() != library.device().raw_context() {
            return Err(CudarcError::OtherContext);
        }
        let wrapped = Stream::wrap(
            library.device(),
            stream.cu_stream().cast(),
            Some(stream.clone()),
        );
        Ok(Self {
            queue: Queue::on(library, wrapped, options, true)?,
            stream: stream.clone(),
        })
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Memory that a dispatch reads: the stream waits for what writes it now.
    ///
    /// # Errors
    /// `WrongDevice` where the slice's context is not the queue's.
    pub fn read<'a, T, S: DevicePtr<T>>(
        &'a self,
        slice: &'a S,
    ) -> Result<CudarcSlice<'a>, BufferError> {
        self.same_context(slice.stream())?;
        let bytes = size_of::<T>() as u64 * slice.len() as u64;
        let (address, order) = slice.device_ptr(&self.stream);
        Ok(self.taken(address, bytes, order))
    }

    /// Memory that a dispatch writes: the stream waits for what reads or writes it now.
    ///
    /// # Errors
    /// `WrongDevice` where the slice's context is not the queue's.
    pub fn write<'a, T, S: DevicePtrMut<T>>(
        &'a self,
        slice: &'a mut S,
    ) -> Result<CudarcSlice<'a>, BufferError> {
        self.same_context(slice.stream())?;
        let bytes = size_of::<T>() as u64 * slice.len() as u64;
        let (address, order) = slice.device_ptr_mut(&self.stream);
        Ok(self.taken(address, bytes, order))
    }

    fn same_context(&self, stream: &CudaStream) -> Result<(), BufferError> {
        match stream.context().cu_ctx() == self.stream.context().cu_ctx() {
            true => Ok(()),
            false => Err(BufferError::WrongDevice),
        }
    }

    fn taken<'a>(
        &self,
        address: sys::CUdeviceptr,
        bytes: u64,
        order: SyncOnDrop<'a>,
    ) -> CudarcSlice<'a> {
        CudarcSlice {
            address,
            bytes,
            stream: stream_key(
                self.queue.device().raw_context().addr(),
                self.stream.cu_stream().addr(),
            ),
            order,
        }
    }
}

impl Deref for CudarcQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

/// Memory of cudarc, taken for dispatches of one queue. Dropping it lets cudarc's later work wait for them.
#[derive(Debug)]
pub struct CudarcSlice<'a> {
    address: sys::CUdeviceptr,
    bytes: u64,
    stream: usize,
    #[expect(dead_code, reason = "held for its drop")]
    order: SyncOnDrop<'a>,
}

impl CudarcSlice<'_> {
    /// The memory, to be bound by dispatches of the queue. Other queues, command lists and graphs refuse it, since cudarc
    /// would not wait for them.
    pub fn slice(&self) -> BufferSlice<'_> {
        // SAFETY: cudarc's memory of the queue's context; its freeing waits for the stream's work so far, by the stream's own
        // order or by the event that is recorded when `self` goes.
        unsafe { BufferSlice::for_stream(self.address, self.bytes, self.stream) }
    }
}

/// Plain numbers: every pattern of bits is a value.
pub trait Plain: DeviceRepr + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Plain for $type {}
    )*};
}
plain!(
    u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, u128, i128, f32, f64
);

impl Buffer {
    /// The buffer as a cudarc slice of `stream`, on the same memory.
    ///
    /// cudarc knows nothing of work that our queues have not finished: wait for it first, or order the streams with an
    /// [`Event`](crate::Event). It knows nothing of constant buffers either: do not write these.
    ///
    /// # Errors
    /// `OtherContext`, or `Length` where the bytes are no multiple of `T`.
    pub fn to_cudarc<T: Plain>(
        &self,
        stream: &Arc<CudaStream>,
    ) -> Result<CudarcBuffer<T>, CudarcError> {
        if stream.context().cu_ctx().cast() != self.device().raw_context() {
            return Err(CudarcError::OtherContext);
        }
        let size = size_of::<T>() as u64;
        if !self.bytes().is_multiple_of(size) {
            return Err(CudarcError::Buffer(BufferError::Length {
                wanted: self.bytes().next_multiple_of(size),
                found: self.bytes(),
            }));
        }
        let length = (self.bytes() / size) as usize;
        // SAFETY: the memory has so many values, every pattern of bits is one, and `buffer` keeps it allocated; the slice is
        // never dropped as an owner.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(self.address(), length) };
        Ok(CudarcBuffer {
            slice: ManuallyDrop::new(slice),
            buffer: self.clone(),
        })
    }
}

/// A [`Buffer`] as a cudarc slice. Dropping it waits for cudarc's work on it and frees nothing.
#[derive(Debug)]
pub struct CudarcBuffer<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    buffer: Buffer,
}

impl<T> CudarcBuffer<T> {
    /// A view to write through. A [constant](Buffer::make_constant) buffer must not be written, which is not checked here.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl<T> Deref for CudarcBuffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> Drop for CudarcBuffer<T> {
    fn drop(&mut self) {
        let stream = self.slice.stream().clone();
        // SAFETY: the slice is not used again. Leaking it lets its stream wait for its users, and keeps the memory.
        unsafe { ManuallyDrop::take(&mut self.slice) }.leak();
        if let Err(error) = stream.synchronize() {
            tracing::debug!(?error, "cudarc stream failed");
        }
    }
}
