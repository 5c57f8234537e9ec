//! Streamed transfers of model weights through a bounded amount of pinned memory.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};

use zinc_runtime::{StagingOptions, Uploader};

use crate::buffer::zcu_slice;
use crate::device::zcu_device;
use crate::pointer::{bytes_to_write, free, lock, out_handle, reference, text, values};
use crate::queue::{locked, staging, zcu_queue};
use crate::status::{Failure, guard, zcu_status};

/// Streams large amounts of data to and from a device, on a stream of its own. One thread at a time uses it.
#[derive(Debug)]
pub struct zcu_uploader(Mutex<Uploader>);

/// The uploader behind a handle, for the time of one call.
///
/// # Safety
/// The handle is null or lives during `'a`.
unsafe fn locked_uploader<'a>(
    uploader: *const zcu_uploader,
) -> Result<MutexGuard<'a, Uploader>, Failure> {
    // SAFETY: the caller vouches for the handle.
    lock(&unsafe { reference(uploader, "uploader") }?.0, "uploader")
}

fn io_failure(what: String, error: &std::io::Error) -> Failure {
    Failure::new(zcu_status::Io, format!("{what}: {error}"))
}

/// An uploader with slots pinned buffers of slot_bytes each; 0 is the default of 4 and of 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_create(
    device: *const zcu_device,
    slots: u32,
    slot_bytes: u64,
    uploader: *mut *mut zcu_uploader,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, device) = unsafe {
            (
                out_handle(uploader, "uploader")?,
                reference(device, "device")?,
            )
        };
        let options = staging(slots, slot_bytes, StagingOptions::default())?;
        let uploader = Uploader::with_options(device.device(), options)?;
        out.put(zcu_uploader(Mutex::new(uploader)));
        Ok(())
    })
}

/// Uploads host bytes to a slice of the same length. The bytes are copied before it returns; the upload is done after
/// zcu_uploader_finish, or in order before the work of a queue after zcu_queue_wait_uploads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_upload(
    uploader: *mut zcu_uploader,
    to: zcu_slice,
    data: *const c_void,
    bytes: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (mut uploader, to, data) = unsafe {
            (
                locked_uploader(uploader)?,
                to.resolve()?,
                values(data.cast::<u8>(), bytes, "data")?,
            )
        };
        Ok(uploader.upload(to, data)?)
    })
}

/// Fills a slice from a file, beginning at byte offset of the file. Host memory does not grow with the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_upload_file(
    uploader: *mut zcu_uploader,
    to: zcu_slice,
    path: *const c_char,
    offset: u64,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and texts.
        let (mut uploader, to, path) = unsafe {
            (
                locked_uploader(uploader)?,
                to.resolve()?,
                text(path, "path")?,
            )
        };
        let file =
            File::open(path).map_err(|error| io_failure(format!("can't open {path}"), &error))?;
        Ok(uploader.upload_file(to, &file, offset)?)
    })
}

/// As zcu_uploader_upload_file, for a file descriptor that is open for reading. Its position does not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_upload_fd(
    uploader: *mut zcu_uploader,
    to: zcu_slice,
    fd: c_int,
    offset: u64,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (mut uploader, to) = unsafe { (locked_uploader(uploader)?, to.resolve()?) };
        if fd < 0 {
            return Err(Failure::argument(format!("{fd} is no file descriptor")));
        }
        // SAFETY: the caller vouches for the descriptor, as this function asks; it is not -1.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let owned = borrowed
            .try_clone_to_owned()
            .map_err(|error| io_failure(format!("can't use file descriptor {fd}"), &error))?;
        Ok(uploader.upload_file(to, &File::from(owned), offset)?)
    })
}

/// Downloads a slice into host memory of the same length, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_download(
    uploader: *mut zcu_uploader,
    from: zcu_slice,
    data: *mut c_void,
    bytes: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (mut uploader, from, data) = unsafe {
            (
                locked_uploader(uploader)?,
                from.resolve()?,
                bytes_to_write(data.cast::<u8>(), bytes, "data")?,
            )
        };
        Ok(uploader.download(from, data)?)
    })
}

/// Lets later work of a queue wait for everything uploaded so far, without blocking the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_wait_uploads(
    queue: *mut zcu_queue,
    uploader: *mut zcu_uploader,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, uploader) = unsafe { (locked(queue)?, locked_uploader(uploader)?) };
        Ok(queue.wait_for(&uploader.event()?)?)
    })
}

/// Waits until every upload has arrived.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_finish(uploader: *mut zcu_uploader) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let mut uploader = unsafe { locked_uploader(uploader) }?;
        Ok(uploader.finish()?)
    })
}

/// Frees an uploader; NULL is nothing. Waits for its uploads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_uploader_free(uploader: *mut zcu_uploader) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(uploader) }
}
