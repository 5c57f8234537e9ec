//! Graphs: captured dispatches that are replayed with new values.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use zinc_contract::FieldKind;
use zinc_runtime::{DispatchId, Graph};

use crate::contract::zcu_values;
use crate::pointer::{free, lock, out, out_handle, reference, values};
use crate::queue::{locked, zcu_queue};
use crate::status::{Failure, guard, zcu_status};

/// Recorded dispatches, ready to be replayed. One thread at a time uses it. It keeps its buffers and kernels alive.
#[derive(Debug)]
pub struct zcu_graph(Mutex<Graph>);

impl zcu_graph {
    pub(crate) fn new(graph: Graph) -> Self {
        Self(Mutex::new(graph))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Graph>, Failure> {
        lock(&self.0, "graph")
    }
}

/// Starts to record a graph: until the capture ends, work of the queue and of its stream becomes part of the graph and does
/// not run. No command may be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_begin_capture(queue: *mut zcu_queue) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let queue = unsafe { locked(queue) }?;
        Ok(queue.begin_capture()?)
    })
}

/// The number of the dispatch that was captured last, for zcu_graph_set. Dispatches are numbered from 0 in the order of
/// recording.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_last_captured(
    queue: *mut zcu_queue,
    dispatch: *mut u32,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (queue, out) = unsafe { (locked(queue)?, out(dispatch, "dispatch")?) };
        let last = queue.last_captured().ok_or_else(|| {
            Failure::new(
                zcu_status::UnknownDispatch,
                "the queue has captured no dispatch",
            )
        })?;
        out.put(last.index() as u32);
        Ok(())
    })
}

/// Ends the capture and makes the graph. Its dispatches depend on each other in the order of recording. The capture is over
/// in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_end_capture(
    queue: *mut zcu_queue,
    graph: *mut *mut zcu_graph,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, queue) = unsafe { (out_handle(graph, "graph")?, locked(queue)?) };
        out.put(zcu_graph::new(queue.end_capture()?));
        Ok(())
    })
}

/// Launches a graph, in order with the queue's other work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_launch(
    queue: *mut zcu_queue,
    graph: *mut zcu_graph,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, graph) = unsafe { (locked(queue)?, reference(graph, "graph")?.lock()?) };
        Ok(queue.launch(&graph)?)
    })
}

/// Moves what the device needs of a graph to the device, so that its first launch costs no more than later ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_queue_prepare(
    queue: *mut zcu_queue,
    graph: *mut zcu_graph,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let (queue, graph) = unsafe { (locked(queue)?, reference(graph, "graph")?.lock()?) };
        Ok(queue.prepare(&graph)?)
    })
}

/// How many dispatches a graph has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_graph_dispatch_count(
    graph: *mut zcu_graph,
    count: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (graph, out) = unsafe { (reference(graph, "graph")?.lock()?, out(count, "count")?) };
        out.put(graph.len());
        Ok(())
    })
}

/// Gives a dispatch of a graph new values for later launches. They are checked like a new dispatch on the same buffers, and
/// grid, block and shared memory follow. Launches that are already submitted keep the old ones; after a failure so do later
/// ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_graph_set(
    graph: *mut zcu_graph,
    dispatch: u32,
    values: *const zcu_values,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (mut graph, given) = unsafe {
            (
                reference(graph, "graph")?.lock()?,
                reference(values, "values")?,
            )
        };
        let id = DispatchId::new(dispatch as usize);
        let (kernel, _) = graph.dispatch(id)?;
        // SAFETY: as above.
        let words = unsafe { given.words(kernel) }?;
        Ok(graph.set_words(id, &words)?)
    })
}

/// As zcu_graph_set, for the push block alone: launch counts and specialization values stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_graph_set_push(
    graph: *mut zcu_graph,
    dispatch: u32,
    push: *const c_void,
    push_bytes: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (mut graph, push) = unsafe {
            (
                reference(graph, "graph")?.lock()?,
                values(push.cast::<u8>(), push_bytes, "push")?,
            )
        };
        let id = DispatchId::new(dispatch as usize);
        let (kernel, old) = graph.dispatch(id)?;
        let (launch, spec) =
            old[kernel.push_words..].split_at(kernel.fields_of(FieldKind::Launch).count());
        let words = kernel.words(push, launch, spec)?;
        Ok(graph.set_words(id, &words)?)
    })
}

/// Frees a graph; NULL is nothing. Launches that are already submitted keep what they need.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_graph_free(graph: *mut zcu_graph) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(graph) }
}
