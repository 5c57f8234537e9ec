//! Device memory, and the slices of it that a dispatch binds.

use zinc_runtime::{Buffer, BufferSlice};

use crate::device::zcu_device;
use crate::pointer::{free, out_handle, reference};
use crate::status::{Failure, guard, zcu_status};

/// The length of a slice that reaches to the end of its buffer.
pub const ZCU_TO_END: u64 = 0xffff_ffff_ffff_ffff;

/// Device memory. It may be shared between threads.
#[derive(Debug)]
pub struct zcu_buffer(Buffer);

/// A part of a buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_slice {
    /// The buffer; NULL binds nothing, where the contract touches nothing.
    pub buffer: *const zcu_buffer,
    /// First byte.
    pub offset: u64,
    /// Bytes, or ZCU_TO_END.
    pub bytes: u64,
}

impl zcu_slice {
    /// The part of the buffer.
    ///
    /// # Safety
    /// The buffer is null or a handle that lives during `'a`.
    pub(crate) unsafe fn resolve<'a>(&self) -> Result<BufferSlice<'a>, Failure> {
        if self.buffer.is_null() {
            return Ok(BufferSlice::UNBOUND);
        }
        // SAFETY: the caller vouches for the handle.
        let buffer = &unsafe { reference(self.buffer, "slice.buffer") }?.0;
        let end = match self.bytes {
            ZCU_TO_END => buffer.bytes(),
            bytes => self.offset.saturating_add(bytes),
        };
        Ok(buffer.slice(self.offset..end)?)
    }
}

/// Allocates device memory; its contents are undefined. Its address is a multiple of 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_create(
    device: *const zcu_device,
    bytes: u64,
    buffer: *mut *mut zcu_buffer,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, device) =
            unsafe { (out_handle(buffer, "buffer")?, reference(device, "device")?) };
        out.put(zcu_buffer(device.device().buffer(bytes)?));
        Ok(())
    })
}

/// A buffer around memory of the caller (CUdeviceptr) in the device's context. It has to stay allocated until the buffer is
/// freed and the work that uses it is done. Freeing the buffer does not free the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_from_address(
    device: *const zcu_device,
    address: u64,
    bytes: u64,
    buffer: *mut *mut zcu_buffer,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, device) =
            unsafe { (out_handle(buffer, "buffer")?, reference(device, "device")?) };
        if address == 0 || address.checked_add(bytes).is_none() {
            return Err(Failure::argument(format!(
                "{bytes} bytes at address {address:#x} are no device memory"
            )));
        }
        // SAFETY: the caller vouches for the memory, as this function asks.
        let wrapped = unsafe { Buffer::from_raw(device.device(), address, bytes) };
        out.put(zcu_buffer(wrapped));
        Ok(())
    })
}

/// Promises that the buffer's contents stay as they are until its memory is freed: for weights, once they are uploaded. Waits
/// until everything on the device is done. There is no way back. From then on, what would write the buffer is refused with
/// ZCU_STATUS_CONSTANT: dispatches, fills, copies, writes, uploads, and lists and graphs that were recorded before. In return,
/// kernels may read it while the kernel before them still runs, whatever that writes; other weights they read so only where
/// they follow a dispatch, on the same queue or in the same list or graph, that writes none of them. Fails while a queue
/// captures.
///
/// The promise is the caller's where the library does not see who writes: no thread may give work that writes the buffer to a
/// queue meanwhile, and other CUDA clients, unchecked dispatches, and other buffers around the same memory must not write it
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_make_constant(buffer: *const zcu_buffer) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let buffer = unsafe { reference(buffer, "buffer") }?;
        Ok(buffer.0.make_constant()?)
    })
}

/// Frees a buffer; NULL is nothing. Work that was given the buffer keeps its memory until it is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_free(buffer: *mut zcu_buffer) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(buffer) }
}

/// The device address (CUdeviceptr); 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_address(buffer: *const zcu_buffer) -> u64 {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(buffer, "buffer") }.map_or(0, |buffer| buffer.0.address())
}

/// How many bytes a buffer has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_buffer_bytes(buffer: *const zcu_buffer) -> u64 {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(buffer, "buffer") }.map_or(0, |buffer| buffer.0.bytes())
}
