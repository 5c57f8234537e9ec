//! The C interface of `include/zinc_runtime.h`: handles and status codes around the safe layer.
//!
//! Each function says in the header what it does and what its pointers have to be. Here every function turns its pointers
//! into references, runs the safe layer, and keeps the text of a failure for `zinc_rt_last_error`. No panic leaves it.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use cubin_format::{Archive, ArchiveError};
use zinc_contract::{ContractError, Kernel, MAX_BUFFERS, Words};

use crate::queue::Token;
use crate::{
    Buffer, BufferError, BufferSlice, CudaError, Device, DeviceError, DeviceSelector,
    DispatchError, DispatchId, Driver, DriverError, Graph, GraphError, Library, LibraryError,
    Queue, QueueError, QueueOptions, StagingOptions, TransferError, Uploader,
};

/// What a function returns; the values are those of `zinc_rt_status`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No driver or no GPU.
    NoDevice = 1,
    /// An argument, a contract or an archive is broken.
    Invalid = 2,
    /// The driver refused something, or earlier work failed.
    Driver = 3,
    /// The ring of pending commands is full.
    Full = 4,
    /// Not done yet.
    NotReady = 5,
    /// A bug.
    Internal = 6,
}

/// `zinc_rt_slice`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    buffer: *const Buffer,
    offset: u64,
    bytes: u64,
}

/// `zinc_rt_values`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Values {
    push: *const c_void,
    push_bytes: usize,
    launch: *const u32,
    launch_count: usize,
    spec: *const u32,
    spec_count: usize,
}

/// `zinc_rt_device_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    name: [c_char; 256],
    pci_bus_id: [c_char; 32],
    uuid: [c_char; 48],
    memory_bytes: u64,
    ordinal: u32,
    capability_major: u32,
    capability_minor: u32,
    sm_count: u32,
    l2_bytes: u32,
    shared_bytes_per_block: u32,
}

/// A status with its text.
struct Failure(Status, String);

fn invalid(text: impl Into<String>) -> Failure {
    Failure(Status::Invalid, text.into())
}

/// An error and what caused it in one text.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

macro_rules! failures {
    ($($error:ty => $status:expr),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let status: fn(&$error) -> Status = $status;
                Self(status(&error), chain(&error))
            }
        }
    )*};
}
failures! {
    ArchiveError => |_| Status::Invalid,
    ContractError => |_| Status::Invalid,
    CudaError => |_| Status::Driver,
    DriverError => |error| if error.is_no_device() { Status::NoDevice } else { Status::Driver },
    DeviceError => |error| match error {
        _ if error.is_no_device() => Status::NoDevice,
        DeviceError::NotFound { .. } | DeviceError::UnknownSelector { .. } => Status::Invalid,
        _ => Status::Driver,
    },
    LibraryError => |error| library_status(error),
    BufferError => |error| buffer_status(error),
    DispatchError => |error| dispatch_status(error),
    GraphError => |error| match error {
        GraphError::UnknownDispatch { .. } => Status::Invalid,
        GraphError::Dispatch(error) => dispatch_status(error),
        GraphError::Cuda(_) => Status::Driver,
    },
    QueueError => |error| match error {
        QueueError::RingFull { .. } => Status::Full,
        QueueError::Cuda(_) => Status::Driver,
        QueueError::Buffer(error) => buffer_status(error),
        _ => Status::Invalid,
    },
    TransferError => |error| match error {
        TransferError::Cuda(_) => Status::Driver,
        TransferError::Buffer(error) => buffer_status(error),
        _ => Status::Invalid,
    },
}

fn library_status(error: &LibraryError) -> Status {
    match error {
        LibraryError::Load { .. } => Status::Driver,
        _ => Status::Invalid,
    }
}

fn buffer_status(error: &BufferError) -> Status {
    match error {
        BufferError::Cuda(_) | BufferError::OutOfMemory { .. } => Status::Driver,
        _ => Status::Invalid,
    }
}

fn dispatch_status(error: &DispatchError) -> Status {
    match error {
        DispatchError::Launch { .. } => Status::Driver,
        DispatchError::Library(error) => library_status(error),
        _ => Status::Invalid,
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn run(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(
            Status::Internal,
            "a bug of zinc-runtime: it panicked".into(),
        ),
    };
    let Failure(status, text) = failure;
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
    status
}

/// What a pointer of the caller refers to.
///
/// # Safety
/// It is null, or valid for `'a`.
unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid("an argument is NULL"))
}

/// As [`reference`], and nothing else refers to it.
///
/// # Safety
/// It is null, or valid and not shared for `'a`.
unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid("an argument is NULL"))
}

/// The values at a pointer; none where the count is 0.
///
/// # Safety
/// It points to so many values that are valid for `'a`, unless the count is 0.
unsafe fn values<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller vouches for it.
    let first = unsafe { reference(pointer) }?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// As [`values`], to write to.
///
/// # Safety
/// As there, and nothing else refers to them.
unsafe fn values_mut<'a, T>(pointer: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller vouches for it.
    let first = unsafe { exclusive(pointer) }?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

/// A C text.
///
/// # Safety
/// It is null, or NUL-terminated and valid for `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a CStr, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe { reference(pointer) }?;
    // SAFETY: as above.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

fn utf8(text: &CStr) -> Result<&str, Failure> {
    text.to_str().map_err(|_| invalid("a text is not UTF-8"))
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Puts a new handle where the caller wants it.
///
/// # Safety
/// `out` is null or can be written.
unsafe fn hand_out<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller vouches for it.
    let out = unsafe { exclusive(out) }?;
    *out = Box::into_raw(Box::new(make()?));
    Ok(())
}

fn put_text(into: &mut [c_char], text: &str) {
    let room = into.len() - 1;
    for (slot, byte) in into[..room].iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
}

impl Slice {
    /// # Safety
    /// The buffer is null, or valid for `'a`.
    unsafe fn get<'a>(&self) -> Result<BufferSlice<'a>, Failure> {
        // SAFETY: the caller vouches for it.
        match unsafe { self.buffer.as_ref() } {
            None => Ok(BufferSlice::UNBOUND),
            Some(buffer) => Ok(buffer.slice(self.offset..self.offset.saturating_add(self.bytes))?),
        }
    }

    fn length(&self) -> Result<usize, Failure> {
        usize::try_from(self.bytes).map_err(|_| invalid("more bytes than there is memory"))
    }
}

/// The words of a dispatch.
///
/// # Safety
/// `given` is null or valid, and so are its pointers for their counts.
unsafe fn words(kernel: &Kernel, given: *const Values) -> Result<Words, Failure> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let given = reference(given)?;
        let push = values(given.push.cast::<u8>(), given.push_bytes)?;
        let launch = values(given.launch, given.launch_count)?;
        let spec = values(given.spec, given.spec_count)?;
        Ok(kernel.words(push, launch, spec)?)
    }
}

fn options(ring: u32) -> QueueOptions {
    let default = QueueOptions::default();
    QueueOptions {
        ring: if ring == 0 {
            default.ring
        } else {
            ring as usize
        },
        ..default
    }
}

/// Declares the functions of the header: each runs its body with its pointers vouched for by the caller.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        /// See `include/zinc_runtime.h`.
        ///
        /// # Safety
        /// The pointers are what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> Status {
            // SAFETY: the caller keeps to the header.
            run(|| unsafe { $body })
        }
    )*};
}

macro_rules! frees {
    ($($name:ident($type:ty)),* $(,)?) => {$(
        /// See `include/zinc_runtime.h`.
        ///
        /// # Safety
        /// The handle is null, or was handed out and not freed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut $type) {
            if !handle.is_null() {
                run(|| {
                    // SAFETY: the caller vouches for it.
                    drop(unsafe { Box::from_raw(handle) });
                    Ok(())
                });
            }
        }
    )*};
}

/// Reads one value of a handle; zero where it is null.
macro_rules! getters {
    ($($name:ident($type:ty) -> $value:ty { $get:expr })*) => {$(
        /// See `include/zinc_runtime.h`.
        ///
        /// # Safety
        /// The handle is null, or was handed out and not freed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const $type) -> $value {
            let get: fn(&$type) -> $value = $get;
            // SAFETY: the caller vouches for it.
            unsafe { handle.as_ref() }.map_or(NOTHING as $value, get)
        }
    )*};
}
/// Zero as a number and as a pointer.
const NOTHING: usize = 0;

frees! {
    zinc_rt_archive_free(Archive<'static>),
    zinc_rt_device_free(Device),
    zinc_rt_library_free(Library),
    zinc_rt_buffer_free(Buffer),
    zinc_rt_queue_free(Queue),
    zinc_rt_graph_free(Graph),
    zinc_rt_uploader_free(Uploader),
}

getters! {
    zinc_rt_device_context(Device) -> *mut c_void { Device::raw_context }
    zinc_rt_buffer_address(Buffer) -> u64 { Buffer::address }
    zinc_rt_buffer_bytes(Buffer) -> u64 { Buffer::bytes }
    zinc_rt_queue_stream(Queue) -> *mut c_void { Queue::raw_stream }
}

/// See `include/zinc_runtime.h`.
#[unsafe(no_mangle)]
pub extern "C" fn zinc_rt_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// An archive as a handle, for crates that embed one and hand it to C.
pub fn archive_handle(archive: Archive<'static>) -> *mut Archive<'static> {
    Box::into_raw(Box::new(archive))
}

functions! {
    zinc_rt_archive_open(bytes: *const c_void, size: usize, out: *mut *mut Archive<'static>) {
        let blob: &'static [u8] = values(bytes.cast::<u8>(), size)?;
        hand_out(out, || Ok(Archive::open(blob)?))
    }

    zinc_rt_archive_read(file: *const c_char, out: *mut *mut Archive<'static>) {
        let file = text(file)?;
        hand_out(out, || Ok(Archive::read(path(file))?))
    }

    zinc_rt_kernel_find(name: *const c_char, out: *mut *const Kernel) {
        let kernel = zinc_contract::kernel(utf8(text(name)?)?)?;
        *exclusive(out)? = kernel;
        Ok(())
    }

    zinc_rt_device_open(selector: *const c_char, out: *mut *mut Device) {
        let selector: DeviceSelector = match selector.is_null() {
            true => DeviceSelector::Auto,
            false => utf8(text(selector)?)?.parse()?,
        };
        hand_out(out, || Ok(Device::open(&selector)?))
    }

    zinc_rt_device_from_context(context: *mut c_void, out: *mut *mut Device) {
        hand_out(out, || Ok(Device::from_raw_context(&Driver::load()?, context)?))
    }

    zinc_rt_device_describe(device: *const Device, out: *mut Info) {
        let info = reference(device)?.info();
        let mut described = Info {
            name: [0; 256],
            pci_bus_id: [0; 32],
            uuid: [0; 48],
            memory_bytes: info.memory_bytes,
            ordinal: info.ordinal,
            capability_major: info.capability.major,
            capability_minor: info.capability.minor,
            sm_count: info.sm_count,
            l2_bytes: info.l2_bytes,
            shared_bytes_per_block: info.shared_bytes_per_block,
        };
        put_text(&mut described.name, &info.name);
        put_text(&mut described.pci_bus_id, &info.pci_bus_id);
        put_text(&mut described.uuid, &info.uuid.to_string());
        *exclusive(out)? = described;
        Ok(())
    }

    zinc_rt_library_new(device: *const Device, archive: *const Archive<'static>, out: *mut *mut Library) {
        let (device, archive) = (reference(device)?, reference(archive)?);
        hand_out(out, || Ok(Library::new(device, archive.clone())?))
    }

    zinc_rt_library_load_all(library: *const Library) {
        reference(library)?.load_all()?;
        Ok(())
    }

    zinc_rt_buffer_new(device: *const Device, bytes: u64, out: *mut *mut Buffer) {
        let device = reference(device)?;
        hand_out(out, || Ok(device.buffer(bytes)?))
    }

    zinc_rt_buffer_from_address(device: *const Device, address: u64, bytes: u64, out: *mut *mut Buffer) {
        let device = reference(device)?;
        hand_out(out, || Ok(Buffer::from_raw(device, address, bytes)))
    }

    zinc_rt_queue_new(library: *const Library, ring: u32, out: *mut *mut Queue) {
        let library = reference(library)?;
        hand_out(out, || Ok(Queue::with_options(library, options(ring))?))
    }

    zinc_rt_queue_from_stream(library: *const Library, stream: *mut c_void, ring: u32, out: *mut *mut Queue) {
        let library = reference(library)?;
        hand_out(out, || Ok(Queue::from_raw_stream(library, stream, options(ring))?))
    }

    zinc_rt_queue_begin(queue: *const Queue) {
        Ok(reference(queue)?.begin()?)
    }

    zinc_rt_queue_dispatch(
        queue: *const Queue,
        kernel: *const Kernel,
        given: *const Values,
        buffers: *const Slice,
        buffer_count: usize,
    ) {
        let queue = reference(queue)?;
        let kernel: &'static Kernel = reference(kernel)?;
        let words = words(kernel, given)?;
        let given = values(buffers, buffer_count)?;
        let mut slices = [BufferSlice::UNBOUND; MAX_BUFFERS];
        let slices = slices.get_mut(..given.len()).ok_or_else(|| invalid("more buffers than any kernel has"))?;
        for (slice, given) in slices.iter_mut().zip(given) {
            *slice = given.get()?;
        }
        Ok(queue.dispatch(kernel, &words, slices)?)
    }

    zinc_rt_queue_fill(queue: *const Queue, to: Slice, value: u8) {
        Ok(reference(queue)?.fill(to.get()?, value)?)
    }

    zinc_rt_queue_copy(queue: *const Queue, to: Slice, from: Slice) {
        Ok(reference(queue)?.copy(to.get()?, from.get()?)?)
    }

    zinc_rt_queue_write(queue: *const Queue, to: Slice, data: *const c_void) {
        let slice = to.get()?;
        Ok(reference(queue)?.write(slice, values(data.cast::<u8>(), to.length()?)?)?)
    }

    zinc_rt_queue_read(queue: *const Queue, from: Slice, data: *mut c_void) {
        let slice = from.get()?;
        Ok(reference(queue)?.read(slice, values_mut(data.cast::<u8>(), from.length()?)?)?)
    }

    zinc_rt_queue_commit_and_wait(queue: *const Queue) {
        Ok(reference(queue)?.commit_and_wait()?)
    }

    zinc_rt_queue_commit(queue: *const Queue, token: *mut u64) {
        let token = exclusive(token)?;
        *token = reference(queue)?.commit_async()?.sequence();
        Ok(())
    }

    zinc_rt_queue_try_commit(queue: *const Queue, token: *mut u64) {
        let token = exclusive(token)?;
        *token = reference(queue)?.try_commit_async()?.sequence();
        Ok(())
    }

    zinc_rt_queue_wait(queue: *const Queue, token: u64) {
        let queue = reference(queue)?;
        Ok(queue.wait(Token::of(queue, token))?)
    }

    zinc_rt_queue_is_done(queue: *const Queue, token: u64) {
        let queue = reference(queue)?;
        match queue.is_done(Token::of(queue, token))? {
            true => Ok(()),
            false => Err(Failure(Status::NotReady, "the command is not done".into())),
        }
    }

    zinc_rt_queue_release_completed(queue: *const Queue) {
        reference(queue)?.release_completed()?;
        Ok(())
    }

    zinc_rt_queue_begin_capture(queue: *const Queue) {
        Ok(reference(queue)?.begin_capture()?)
    }

    zinc_rt_queue_end_capture(queue: *const Queue, out: *mut *mut Graph) {
        let queue = reference(queue)?;
        hand_out(out, || Ok(queue.end_capture()?))
    }

    zinc_rt_graph_set(graph: *mut Graph, dispatch: u32, given: *const Values) {
        let graph = exclusive(graph)?;
        let id = DispatchId::new(dispatch as usize);
        let words = words(graph.dispatch(id)?.0, given)?;
        Ok(graph.set_words(id, &words)?)
    }

    zinc_rt_queue_launch(queue: *const Queue, graph: *const Graph) {
        Ok(reference(queue)?.launch(reference(graph)?)?)
    }

    zinc_rt_uploader_new(device: *const Device, slots: u32, slot_bytes: usize, out: *mut *mut Uploader) {
        let device = reference(device)?;
        let default = StagingOptions::default();
        let staging = StagingOptions {
            slots: if slots == 0 { default.slots } else { slots as usize },
            slot_bytes: if slot_bytes == 0 { default.slot_bytes } else { slot_bytes },
        };
        hand_out(out, || Ok(Uploader::with_options(device, staging)?))
    }

    zinc_rt_uploader_upload(uploader: *mut Uploader, to: Slice, data: *const c_void) {
        let slice = to.get()?;
        Ok(exclusive(uploader)?.upload(slice, values(data.cast::<u8>(), to.length()?)?)?)
    }

    zinc_rt_uploader_upload_file(uploader: *mut Uploader, to: Slice, file: *const c_char, offset: u64) {
        let name = path(text(file)?);
        let file = File::open(name).map_err(|error| invalid(format!("{}: {error}", name.display())))?;
        Ok(exclusive(uploader)?.upload_file(to.get()?, &file, offset)?)
    }

    zinc_rt_uploader_finish(uploader: *mut Uploader) {
        Ok(exclusive(uploader)?.finish()?)
    }
}
