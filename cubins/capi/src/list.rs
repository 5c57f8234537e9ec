//! Command lists: dispatches that are checked once and submitted in one call.

use std::sync::{Mutex, MutexGuard};

use zinc_runtime::CommandList;

use crate::buffer::zcu_slice;
use crate::contract::{zcu_kernel, zcu_values};
use crate::device::zcu_library;
use crate::graph::zcu_graph;
use crate::pointer::{free, lock, out_handle, reference};
use crate::queue::{Bound, locked, zcu_queue};
use crate::status::{Failure, guard, zcu_status};

/// Recorded dispatches. One thread at a time uses it. It keeps its buffers and kernels alive.
#[derive(Debug)]
pub struct zcu_list(Mutex<CommandList>);

impl zcu_list {
    fn lock(&self) -> Result<MutexGuard<'_, CommandList>, Failure> {
        lock(&self.0, "list")
    }
}

/// An empty list. It is submitted to queues of the same library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_list_create(
    library: *const zcu_library,
    list: *mut *mut zcu_list,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, library) = unsafe { (out_handle(list, "list")?, reference(library, "library")?) };
        out.put(zcu_list(Mutex::new(CommandList::new(library.library()))));
        Ok(())
    })
}

/// Checks a dispatch as zcu_queue_dispatch does, and appends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_list_dispatch(
    list: *mut zcu_list,
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    buffers: *const zcu_slice,
    buffer_count: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (mut list, kernel, given, slices) = unsafe {
            (
                reference(list, "list")?.lock()?,
                reference(kernel, "kernel")?.contract(),
                reference(values, "values")?,
                crate::pointer::values(buffers, buffer_count, "buffers")?,
            )
        };
        // SAFETY: as above.
        let (words, bound) = unsafe { (given.words(kernel)?, Bound::resolve(kernel, slices)?) };
        Ok(list.dispatch(kernel, &words, bound.slices())?)
    })
}

/// Submits a list in one call, as often as wanted. Nothing is checked again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_submit(
    queue: *mut zcu_queue,
    list: *mut zcu_list,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, list) = unsafe { (locked(queue)?, reference(list, "list")?.lock()?) };
        Ok(queue.submit(&list)?)
    })
}

/// Makes a graph of a list without a capture: each dispatch depends on the one before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_list_graph(
    list: *mut zcu_list,
    graph: *mut *mut zcu_graph,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, list) = unsafe {
            (
                out_handle(graph, "graph")?,
                reference(list, "list")?.lock()?,
            )
        };
        out.put(zcu_graph::new(list.graph()?));
        Ok(())
    })
}

/// Frees a list; NULL is nothing. What was submitted keeps what it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_list_free(list: *mut zcu_list) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(list) }
}
