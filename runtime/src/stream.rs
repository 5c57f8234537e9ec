//! Streams and events: the driver's order of work, under names that free themselves.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::device::{Device, Owner};
use crate::error::CudaError;
use crate::ffi;

#[derive(Debug)]
pub(crate) struct StreamInner {
    device: Device,
    /// Null for the null stream of another CUDA client.
    raw: *mut ffi::zinc_stream,
    owned: bool,
    /// What keeps a stream of another CUDA client alive.
    #[expect(dead_code, reason = "held for its drop")]
    owner: Option<Owner>,
}

// SAFETY: the driver's stream functions are thread-safe.
unsafe impl Send for StreamInner {}
// SAFETY: as above.
unsafe impl Sync for StreamInner {}

impl Drop for StreamInner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the stream is ours, and the driver finishes its work before it goes.
        let destroyed = ffi::call(|error| unsafe {
            ffi::zinc_stream_destroy(self.device.raw(), self.raw, error)
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "stream not destroyed");
        }
    }
}

/// A sequence of device work. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Arc<StreamInner>);

impl Stream {
    /// A stream that does not synchronize with the null stream.
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is open.
        ffi::call(|error| unsafe { ffi::zinc_stream_create(device.raw(), &mut raw, error) })?;
        Ok(Self(Arc::new(StreamInner {
            device: device.clone(),
            raw,
            owned: true,
            owner: None,
        })))
    }

    /// A stream of another CUDA client, which `owner` keeps alive.
    pub(crate) fn wrap(device: &Device, raw: *mut ffi::zinc_stream, owner: Option<Owner>) -> Self {
        Self(Arc::new(StreamInner {
            device: device.clone(),
            raw,
            owned: false,
            owner,
        }))
    }

    pub(crate) fn raw(&self) -> *mut ffi::zinc_stream {
        self.0.raw
    }

    /// What tells the stream from every other one.
    #[inline]
    pub(crate) fn key(&self) -> usize {
        stream_key(self.device().raw_context().addr(), self.raw().addr())
    }

    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: context and stream are open.
        ffi::call(|error| unsafe {
            ffi::zinc_stream_synchronize(self.device().raw(), self.raw(), error)
        })
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: context, stream and event are open.
        ffi::call(|error| unsafe {
            ffi::zinc_stream_wait(self.device().raw(), self.raw(), event.raw.as_ptr(), error)
        })
    }
}

/// The handles 0 to 2 mean the default streams of whichever context is current, so that there the context decides.
#[inline]
pub(crate) fn stream_key(context: usize, stream: usize) -> usize {
    match stream {
        0..=2 => context + stream,
        handle => handle,
    }
}

/// A mark in the order of device work.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: NonNull<ffi::zinc_event>,
}

// SAFETY: the driver's event functions are thread-safe.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that can be waited for and timed.
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Self::create(device, true)
    }

    /// An event that can only be waited for, which costs the device less.
    pub(crate) fn untimed(device: &Device) -> Result<Self, CudaError> {
        Self::create(device, false)
    }

    fn create(device: &Device, timing: bool) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is open.
        ffi::call(|error| unsafe {
            ffi::zinc_event_create(device.raw(), i32::from(timing), &mut raw, error)
        })?;
        Ok(Self {
            device: device.clone(),
            raw: NonNull::new(raw).expect("the shim returns an event on success"),
        })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: context, event and stream are open.
        ffi::call(|error| unsafe {
            ffi::zinc_event_record(self.device.raw(), self.raw.as_ptr(), stream.raw(), error)
        })
    }

    /// Whether the work before the event is done. True for an event that was never recorded.
    ///
    /// # Errors
    /// A driver call or earlier asynchronous work that failed.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        let mut done = 0;
        // SAFETY: context and event are open.
        ffi::call(|error| unsafe {
            ffi::zinc_event_query(self.device.raw(), self.raw.as_ptr(), &mut done, error)
        })?;
        Ok(done != 0)
    }

    /// Waits until the work before the event is done.
    ///
    /// # Errors
    /// A driver call or earlier asynchronous work that failed.
    pub fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: context and event are open.
        ffi::call(|error| unsafe {
            ffi::zinc_event_synchronize(self.device.raw(), self.raw.as_ptr(), error)
        })
    }

    /// Device time from `start` to this event; both are recorded and done.
    ///
    /// # Errors
    /// A driver call that fails, also where one of them is not done or can't be timed.
    pub fn since(&self, start: &Event) -> Result<Duration, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: context and events are open.
        ffi::call(|error| unsafe {
            ffi::zinc_event_elapsed(
                self.device.raw(),
                start.raw.as_ptr(),
                self.raw.as_ptr(),
                &mut milliseconds,
                error,
            )
        })?;
        Ok(Duration::from_secs_f64(
            f64::from(milliseconds.max(0.0)) / 1e3,
        ))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is ours; the driver keeps what unfinished work needs of it.
        let destroyed = ffi::call(|error| unsafe {
            ffi::zinc_event_destroy(self.device.raw(), self.raw.as_ptr(), error)
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "event not destroyed");
        }
    }
}
