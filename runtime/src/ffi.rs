//! Glue between Rust and the shim: one place that turns its error records into [`CudaError`].

use std::ffi::{CStr, c_char};

pub(crate) use crate::shim_bindings::*;

use crate::error::{CudaError, CudaErrorDetails};

/// Runs one shim function and turns a failure into an error value.
pub(crate) fn call(run: impl FnOnce(&mut zinc_error) -> i32) -> Result<(), CudaError> {
    let mut error = zinc_error {
        code: 0,
        index: 0,
        call: std::ptr::null(),
        name: std::ptr::null(),
        text: std::ptr::null(),
    };
    match run(&mut error) {
        0 => Ok(()),
        _ => Err(describe(&error)),
    }
}

#[cold]
fn describe(error: &zinc_error) -> CudaError {
    let details = CudaErrorDetails {
        call: text(error.call),
        code: error.code,
        name: text(error.name),
        text: text(error.text),
        index: error.index,
        log: None,
    };
    details.into()
}

/// A static text of the shim or the driver; empty where there is none.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the shim hands out NUL-terminated static texts of its own or of the library, which is still open.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_string_lossy().into_owned()
}

/// The text in a buffer that the shim filled, up to its NUL.
pub(crate) fn buffer_text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| byte as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
