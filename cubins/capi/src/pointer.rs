//! Turns the pointers of a caller into references, after every check that is possible.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, TryLockError};

use cubin_format::{ArchError, Target};

use crate::status::{Failure, zcu_status};

/// Refuses a pointer that is null or misaligned.
pub(crate) fn refuse<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        let text = format!("argument {what} is NULL");
        return Err(Failure::new(zcu_status::NullPointer, text));
    }
    if !pointer.is_aligned() {
        return Err(
            Failure::argument(format!("argument {what} is not aligned for its type"))
                .wanted(format_args!("a multiple of {}", align_of::<T>()))
                .found(format_args!("{:#x}", pointer.addr())),
        );
    }
    Ok(())
}

/// What `pointer` refers to.
///
/// # Safety
/// Unless it is null or misaligned, it is valid for reads during `'a`.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    refuse(pointer, what)?;
    // SAFETY: not null and aligned; the caller vouches for the rest.
    Ok(unsafe { &*pointer })
}

/// As [`reference`]; null is nothing.
///
/// # Safety
/// As there.
pub(crate) unsafe fn optional<'a, T>(
    pointer: *const T,
    what: &str,
) -> Result<Option<&'a T>, Failure> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: the caller vouches for it.
        false => unsafe { reference(pointer, what) }.map(Some),
    }
}

/// `count` values; the pointer of none may be null.
///
/// # Safety
/// Unless it is null or misaligned, so many values are valid for reads during `'a`.
pub(crate) unsafe fn values<'a, T>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    refuse(pointer, what)?;
    possible::<T>(count, what)?;
    // SAFETY: not null, aligned and of a possible size; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// `count` bytes to write to; the pointer of none may be null. What a caller in C never wrote counts as some value here.
///
/// # Safety
/// Unless it is null, so many bytes are valid for reads and writes during `'a`, and nothing else refers to them.
pub(crate) unsafe fn bytes_to_write<'a>(
    pointer: *mut u8,
    count: usize,
    what: &str,
) -> Result<&'a mut [u8], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    refuse(pointer, what)?;
    possible::<u8>(count, what)?;
    // SAFETY: not null and of a possible size; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

fn possible<T>(count: usize, what: &str) -> Result<(), Failure> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Failure::argument(format!(
            "argument {what} can't have {count} elements"
        ))),
    }
}

/// A text.
///
/// # Safety
/// Unless it is null, it ends in a NUL and is valid for reads during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    refuse(pointer, what)?;
    // SAFETY: not null; the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| Failure::argument(format!("argument {what} is not UTF-8")))
}

/// The target of that name.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn target_of(pointer: *const c_char) -> Result<Target, Failure> {
    // SAFETY: as promised by the caller.
    let text = unsafe { text(pointer, "target") }?;
    text.parse()
        .map_err(|error: ArchError| Failure::argument(error.to_string()).found(text))
}

/// Where a result goes.
pub(crate) struct Out<'a, T>(&'a mut MaybeUninit<T>);

impl<T> Out<'_, T> {
    pub(crate) fn put(self, value: T) {
        self.0.write(value);
    }
}

/// Where a result goes; nothing is written before [`Out::put`].
///
/// # Safety
/// Unless it is null or misaligned, it is valid for writes during `'a`, and nothing else refers to it.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, what: &str) -> Result<Out<'a, T>, Failure> {
    refuse(pointer, what)?;
    // SAFETY: not null and aligned; the caller vouches for the rest, and MaybeUninit asks for no value.
    Ok(Out(unsafe { &mut *pointer.cast::<MaybeUninit<T>>() }))
}

/// Room for `count` results.
///
/// # Safety
/// Unless it is null or misaligned, so many values are valid for writes during `'a`, and nothing else refers to them.
pub(crate) unsafe fn room<'a, T>(
    pointer: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [MaybeUninit<T>], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    refuse(pointer, what)?;
    possible::<T>(count, what)?;
    // SAFETY: not null, aligned and of a possible size; the caller vouches for the rest, and MaybeUninit asks for no value.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast::<MaybeUninit<T>>(), count) })
}

/// Where a new handle goes; it is null until one is put there.
pub(crate) struct OutHandle<'a, T>(&'a mut MaybeUninit<*mut T>);

impl<T> OutHandle<'_, T> {
    pub(crate) fn put(self, value: T) {
        self.0.write(Box::into_raw(Box::new(value)));
    }
}

/// As [`out`] for a new handle: writes null at once, so that a caller who ignores a failure has no wild pointer.
///
/// # Safety
/// As there.
pub(crate) unsafe fn out_handle<'a, T>(
    pointer: *mut *mut T,
    what: &str,
) -> Result<OutHandle<'a, T>, Failure> {
    // SAFETY: the caller vouches for it.
    let out = unsafe { out(pointer, what) }?;
    out.0.write(std::ptr::null_mut());
    Ok(OutHandle(out.0))
}

/// Frees a handle; null is nothing.
///
/// # Safety
/// It came from [`OutHandle::put`], and nothing uses it any more.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller vouches for it.
        let owned = unsafe { Box::from_raw(handle) };
        crate::status::guard(|| {
            drop(owned);
            Ok(())
        });
    }
}

/// The one user of a handle that belongs to one thread at a time.
pub(crate) fn lock<'a, T>(mutex: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>, Failure> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure::new(
            zcu_status::Busy,
            format!("the {what} is in use by another thread"),
        ),
        TryLockError::Poisoned(_) => Failure::new(
            zcu_status::Internal,
            format!("the {what} is unusable after an internal error"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status<T>(result: Result<T, Failure>) -> zcu_status {
        result
            .err()
            .map_or(zcu_status::Ok, |failure| failure.keep())
    }

    #[test]
    fn null_and_misaligned_pointers_are_refused() {
        let words = [0u32; 4];
        // SAFETY: the odd address is refused before it is read.
        let odd = unsafe { values(words.as_ptr().byte_add(1), 2, "words") };
        assert_eq!(status(odd), zcu_status::InvalidArgument);
        // SAFETY: null is refused.
        let null = unsafe { values::<u32>(std::ptr::null(), 2, "words") };
        assert_eq!(status(null), zcu_status::NullPointer);
        // SAFETY: no value is read.
        let empty = unsafe { values::<u32>(std::ptr::null(), 0, "words") };
        assert_eq!(empty.ok(), Some(&[][..]));
    }

    #[test]
    fn impossible_counts_are_refused() {
        let words = [0u32; 4];
        for count in [usize::MAX, usize::MAX / 4, usize::MAX / 4 + 2] {
            // SAFETY: the count is refused before anything is read.
            let refused = unsafe { values(words.as_ptr(), count, "words") };
            assert_eq!(status(refused), zcu_status::InvalidArgument);
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_refused() {
        // SAFETY: the text ends in a NUL.
        let refused = unsafe { text(c"\xff".as_ptr(), "name") };
        assert_eq!(status(refused), zcu_status::InvalidArgument);
    }

    #[test]
    fn second_user_of_a_handle_is_refused() {
        let mutex = Mutex::new(());
        let first = lock(&mutex, "queue").ok();
        assert!(first.is_some());
        assert_eq!(status(lock(&mutex, "queue")), zcu_status::Busy);
        drop(first);
        assert_eq!(status(lock(&mutex, "queue")), zcu_status::Ok);
    }
}
