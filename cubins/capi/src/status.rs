//! Status codes, and what is known of the last failure on a thread.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cubin_format::ArchiveError;
use zinc_contract::{ContractError, FieldKind};
use zinc_runtime::{
    BufferError, CudaError, DeviceError, DispatchError, DriverError, GraphError, LibraryError,
    QueueError, TransferError,
};

/// What a function returns. The numbers are stable; later versions may add some.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum zcu_status {
    /// Done.
    Ok = 0,
    /// A pointer that has to refer to something is NULL.
    NullPointer = 1,
    /// An argument is out of range, misaligned or not UTF-8.
    InvalidArgument = 2,
    /// Another thread is using the handle.
    Busy = 3,
    /// A bug of this library. Nothing is known about the handles that were involved: free them.
    Internal = 4,
    /// A failure that this version of the interface has no code for.
    Other = 5,

    /// No kernel has this name; the hint is the most similar one.
    UnknownKernel = 10,
    /// The kernel has a contract and no implementation.
    Pending = 11,
    /// The kernel has no image for this target.
    UnknownTarget = 12,
    /// The kernel has no image that runs on this device.
    UnsupportedDevice = 13,
    /// The archive is damaged, or is no archive.
    ArchiveDamaged = 14,
    /// A file can't be read, or ends early.
    Io = 15,

    /// The push block has the wrong size.
    PushBytes = 20,
    /// Too few or too many launch counts or specialization values.
    ValueCount = 21,
    /// The complete push struct has the wrong number of words.
    WordCount = 22,
    /// Too few or too many buffers.
    BufferCount = 23,
    /// The values break a precondition of the contract.
    Precondition = 24,
    /// A buffer is smaller than what the kernel would touch.
    BufferTooSmall = 25,
    /// A buffer starts at an address that the contract does not allow.
    Misaligned = 26,
    /// Two buffers overlap, and one of them is written.
    Overlap = 27,
    /// An expression of the contract has no value for these values.
    NoValue = 28,
    /// Grid, block or shared memory are beyond what the device or the compiled code can do.
    LaunchLimit = 29,
    /// The compiled parameters are not those of the contract.
    AbiMismatch = 30,

    /// This machine has no usable GPU: no driver, or no device. The text lists every place that was tried.
    NoDevice = 40,
    /// There are devices, and none is the one asked for.
    DeviceNotFound = 41,
    /// There is a driver, and it can't be used: too old, or damaged.
    Driver = 42,
    /// A driver call, or work that was queued earlier, failed; driver_code says why.
    Cuda = 43,
    /// Not enough device memory.
    OutOfMemory = 44,

    /// A range reaches past the end.
    Range = 50,
    /// Source and destination differ in length.
    Length = 51,
    /// A slice that has to bind a buffer binds none.
    Unbound = 52,
    /// The handles belong to different devices or contexts.
    WrongDevice = 53,
    /// The token or list belongs to another queue or library.
    WrongQueue = 54,
    /// The buffer is constant, and would be written.
    Constant = 55,

    /// As many commands are pending as the ring holds.
    RingFull = 60,
    /// A command is open already.
    AlreadyBegun = 61,
    /// Not while the queue is capturing a graph.
    Capturing = 62,
    /// The queue is not capturing a graph.
    NotCapturing = 63,
    /// The graph has no dispatch of this number.
    UnknownDispatch = 64,
}

/// What is known of a failure. No text is NULL; what does not apply is empty.
#[repr(C)]
#[derive(Debug)]
pub struct zcu_error {
    /// What the function returned.
    pub status: zcu_status,
    /// The driver's code (CUresult); 0 where no driver call failed, negative where it could not be made.
    pub driver_code: i32,
    /// The whole message, for people. It may have several lines.
    pub text: *const c_char,
    /// The kernel.
    pub kernel: *const c_char,
    /// The buffer, by its name in the contract.
    pub buffer: *const c_char,
    /// The image ("sm_90", "compute_120") or compute capability ("9.0") that it is about.
    pub arch: *const c_char,
    /// What was wanted.
    pub wanted: *const c_char,
    /// What was found.
    pub found: *const c_char,
    /// What helps: the most similar name, or the usual cause.
    pub hint: *const c_char,
}

/// A failure on its way to the caller.
#[derive(Debug)]
pub(crate) struct Failure(Box<Details>);

#[derive(Debug)]
struct Details {
    status: zcu_status,
    driver_code: i32,
    text: String,
    kernel: String,
    buffer: String,
    arch: String,
    wanted: String,
    found: String,
    hint: String,
}

impl Failure {
    pub(crate) fn new(status: zcu_status, text: impl Into<String>) -> Self {
        Self(Box::new(Details {
            status,
            driver_code: 0,
            text: text.into(),
            kernel: String::new(),
            buffer: String::new(),
            arch: String::new(),
            wanted: String::new(),
            found: String::new(),
            hint: String::new(),
        }))
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(zcu_status::InvalidArgument, text)
    }

    /// An index that is too large.
    pub(crate) fn index(what: &str, found: usize, count: usize) -> Self {
        Self::new(
            zcu_status::Range,
            format!("there is no {what} {found}: there are {count}"),
        )
        .wanted(format_args!("less than {count}"))
        .found(found)
    }

    /// An error with what caused it.
    fn of(status: zcu_status, error: &dyn Error) -> Self {
        Self::new(status, chain(error))
    }

    pub(crate) fn kernel(mut self, kernel: impl Display) -> Self {
        self.0.kernel = kernel.to_string();
        self
    }

    pub(crate) fn buffer(mut self, buffer: impl Display) -> Self {
        self.0.buffer = buffer.to_string();
        self
    }

    fn arch(mut self, arch: impl Display) -> Self {
        self.0.arch = arch.to_string();
        self
    }

    pub(crate) fn wanted(mut self, wanted: impl Display) -> Self {
        self.0.wanted = wanted.to_string();
        self
    }

    pub(crate) fn found(mut self, found: impl Display) -> Self {
        self.0.found = found.to_string();
        self
    }

    fn hint(mut self, hint: impl Display) -> Self {
        self.0.hint = hint.to_string();
        self
    }

    /// Puts what the failure is about before its text.
    pub(crate) fn about(mut self, what: impl Display) -> Self {
        self.0.text = format!("{what}: {}", self.0.text);
        self
    }

    /// As the failure of a driver call: adds the driver's code and hint.
    fn cuda(mut self, error: &CudaError) -> Self {
        self.0.driver_code = error.code;
        self.hint(error.hint().unwrap_or_default())
    }

    /// Keeps it as this thread's last failure.
    pub(crate) fn keep(self) -> zcu_status {
        let status = self.0.status;
        // A thread that is ending keeps nothing any more.
        let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Kept::new(*self.0)));
        status
    }
}

/// An error and its causes in one text. A cause that the error's own text ends in is not repeated.
fn chain(error: &dyn Error) -> String {
    let text = error.to_string();
    match error.source().map(chain) {
        Some(cause) if !text.ends_with(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

/// The last failure of a thread, as C reads it.
struct Kept {
    error: zcu_error,
    #[expect(dead_code, reason = "the error points into them")]
    texts: [CString; 7],
}

thread_local! {
    static LAST: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

impl Kept {
    fn new(details: Details) -> Box<Self> {
        let texts = [
            details.text,
            details.kernel,
            details.buffer,
            details.arch,
            details.wanted,
            details.found,
            details.hint,
        ]
        .map(|text| c_text(&text));
        let [text, kernel, buffer, arch, wanted, found, hint] =
            [0, 1, 2, 3, 4, 5, 6].map(|at: usize| texts[at].as_ptr());
        Box::new(Self {
            error: zcu_error {
                status: details.status,
                driver_code: details.driver_code,
                text,
                kernel,
                buffer,
                arch,
                wanted,
                found,
                hint,
            },
            texts,
        })
    }
}

/// A text for C; a NUL inside becomes a blank.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Writes a text into a field of fixed size, with a NUL behind it. What does not fit is cut off.
pub(crate) fn c_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut array = [0; N];
    for (slot, byte) in array.iter_mut().zip(text[..end].bytes()) {
        *slot = byte as c_char;
    }
    array
}

/// Runs the body of a function: a failure or a panic becomes a status, and this thread's last failure.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> zcu_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => zcu_status::Ok,
        Ok(Err(failure)) => failure.keep(),
        Err(panic) => {
            let text = format!("an internal error: {}", panic_text(panic));
            Failure::new(zcu_status::Internal, text).keep()
        }
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic,
    };
    match panic.downcast::<&'static str>() {
        Ok(text) => (*text).to_owned(),
        Err(other) => {
            // Its drop is unknown code that could panic again.
            std::mem::forget(other);
            "a panic without a text".to_owned()
        }
    }
}

/// What is known of the last failure on this thread; NULL before the first. It stays until the next failure on this thread: a
/// call that succeeds does not change it.
#[unsafe(no_mangle)]
pub extern "C" fn zcu_last_error() -> *const zcu_error {
    LAST.try_with(|last| {
        last.borrow()
            .as_ref()
            .map_or(std::ptr::null(), |kept| &raw const kept.error)
    })
    .unwrap_or(std::ptr::null())
}

impl From<ContractError> for Failure {
    fn from(error: ContractError) -> Self {
        use ContractError as E;
        let of = |status| Self::of(status, &error);
        match &error {
            E::UnknownKernel { name, nearest } => of(zcu_status::UnknownKernel)
                .kernel(name)
                .hint(nearest.unwrap_or_default()),
            E::Pending { kernel, reason } => of(zcu_status::Pending).kernel(kernel).hint(reason),
            E::PushBytes {
                kernel,
                wanted,
                least,
                most,
                found,
            } => {
                let failure = of(zcu_status::PushBytes).kernel(kernel).found(found);
                match least < most {
                    true => failure.wanted(format_args!("{wanted} ({least} to {most})")),
                    false => failure.wanted(wanted),
                }
            }
            E::ValueCount {
                kernel,
                kind,
                wanted,
                found,
            } => {
                let what = match kind {
                    FieldKind::Push => "push fields",
                    FieldKind::Launch => "launch counts",
                    FieldKind::Spec => "specialization values",
                };
                of(zcu_status::ValueCount)
                    .kernel(kernel)
                    .wanted(format_args!("{wanted} {what}"))
                    .found(found)
            }
            E::UnknownField { kernel, name } => {
                of(zcu_status::InvalidArgument).kernel(kernel).found(name)
            }
            E::MissingField { kernel, field } => {
                of(zcu_status::ValueCount).kernel(kernel).wanted(field)
            }
            E::WordCount {
                kernel,
                wanted,
                found,
            } => of(zcu_status::WordCount)
                .kernel(kernel)
                .wanted(wanted)
                .found(found),
            E::BufferCount {
                kernel,
                wanted,
                found,
            } => of(zcu_status::BufferCount)
                .kernel(kernel)
                .wanted(wanted)
                .found(found),
            E::Precondition {
                kernel,
                text,
                values,
            } => of(zcu_status::Precondition)
                .kernel(kernel)
                .wanted(text)
                .found(values),
            E::BufferTooSmall {
                kernel,
                buffer,
                wanted,
                found,
            } => of(zcu_status::BufferTooSmall)
                .kernel(kernel)
                .buffer(buffer)
                .wanted(wanted)
                .found(found),
            E::Misaligned {
                kernel,
                buffer,
                wanted,
                found,
            } => of(zcu_status::Misaligned)
                .kernel(kernel)
                .buffer(buffer)
                .wanted(format_args!("a multiple of {wanted}"))
                .found(format_args!("{found:#x}")),
            E::Overlap { kernel, a, b, .. } => of(zcu_status::Overlap)
                .kernel(kernel)
                .buffer(a)
                .found(format_args!("an overlap with {b}")),
            E::Eval {
                kernel,
                text,
                values,
                ..
            } => of(zcu_status::NoValue)
                .kernel(kernel)
                .wanted(text)
                .found(values),
            E::LaunchLimit {
                kernel,
                what,
                axis,
                most,
                found,
            } => of(zcu_status::LaunchLimit)
                .kernel(kernel)
                .wanted(format_args!("{what} {axis} of at most {most}"))
                .found(found),
            E::BlockTooLarge {
                kernel,
                most,
                found,
            } => of(zcu_status::LaunchLimit)
                .kernel(kernel)
                .wanted(format_args!("at most {most} threads"))
                .found(found),
            E::Cluster {
                kernel,
                most,
                found,
                ..
            } => of(zcu_status::LaunchLimit)
                .kernel(kernel)
                .wanted(format_args!("whole clusters of 1 to {most} blocks"))
                .found(found),
            E::SharedMemory { kernel, found } => {
                of(zcu_status::LaunchLimit).kernel(kernel).found(found)
            }
        }
    }
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        use ArchiveError as E;
        let of = |status| Self::of(status, &error);
        match &error {
            E::Io { .. } => of(zcu_status::Io),
            E::UnknownKernel { name, nearest } => of(zcu_status::UnknownKernel)
                .kernel(name)
                .hint(nearest.as_deref().unwrap_or_default()),
            E::UnknownTarget {
                kernel,
                wanted,
                found,
            } => of(zcu_status::UnknownTarget)
                .kernel(kernel)
                .arch(wanted)
                .wanted(wanted)
                .found(list(found)),
            E::NoTarget { kernel, source } => of(zcu_status::UnsupportedDevice)
                .kernel(kernel)
                .arch(source.wanted)
                .wanted(format_args!("code for {}", source.wanted))
                .found(list(&source.embedded)),
            E::StoredHash {
                kernel,
                target,
                wanted,
                found,
            }
            | E::RawHash {
                kernel,
                target,
                wanted,
                found,
            } => of(zcu_status::ArchiveDamaged)
                .kernel(kernel)
                .arch(target)
                .wanted(wanted)
                .found(found),
            E::Decompress { kernel, target, .. } | E::RawSize { kernel, target, .. } => {
                of(zcu_status::ArchiveDamaged).kernel(kernel).arch(target)
            }
            _ => of(zcu_status::ArchiveDamaged),
        }
    }
}

fn list(targets: &[cubin_format::Target]) -> String {
    let texts: Vec<String> = targets.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        let status = match error.code {
            CudaError::OUT_OF_MEMORY => zcu_status::OutOfMemory,
            _ => zcu_status::Cuda,
        };
        Self::of(status, &error).cuda(&error)
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        use DriverError as E;
        let failure = Self::of(
            match error.is_no_device() {
                true => zcu_status::NoDevice,
                false => zcu_status::Driver,
            },
            &error,
        );
        match &error {
            E::NotFound { search } => failure.hint(search.cause),
            E::NotStarted { source, .. } => failure.cuda(source),
            E::TooOld { wanted, found, .. } => failure.wanted(wanted).found(found),
            E::MissingFunction { function, .. } => failure.wanted(function),
            _ => failure,
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        use DeviceError as E;
        let no_device = error.is_no_device();
        let of = |status, error: &DeviceError| Self::of(status, error);
        match error {
            E::Driver(error) => error.into(),
            E::Cuda(ref source) if no_device => of(zcu_status::NoDevice, &error).cuda(source),
            E::Cuda(error) => error.into(),
            E::NoDevice => of(zcu_status::NoDevice, &error),
            E::NotFound {
                ref wanted,
                ref found,
            } => {
                let names: Vec<String> = found
                    .iter()
                    .map(|device| format!("{} ({})", device.ordinal, device.name))
                    .collect();
                of(zcu_status::DeviceNotFound, &error)
                    .wanted(wanted)
                    .found(names.join(", "))
            }
            E::UnknownSelector { ref text } => of(zcu_status::InvalidArgument, &error).found(text),
            _ => of(zcu_status::Other, &error),
        }
    }
}

impl From<BufferError> for Failure {
    fn from(error: BufferError) -> Self {
        use BufferError as E;
        let of = |status| Self::of(status, &error);
        match &error {
            E::OutOfMemory { wanted, free, .. } => of(zcu_status::OutOfMemory)
                .wanted(wanted)
                .found(format_args!("{free} free")),
            E::Range { start, end, bytes } => of(zcu_status::Range)
                .wanted(format_args!("{start}..{end}"))
                .found(bytes),
            E::Length { wanted, found } => of(zcu_status::Length).wanted(wanted).found(found),
            E::Unbound => of(zcu_status::Unbound),
            E::WrongDevice => of(zcu_status::WrongDevice),
            E::OtherStream => of(zcu_status::WrongQueue),
            E::Constant => of(zcu_status::Constant),
            E::Cuda(error) => error.clone().into(),
            _ => of(zcu_status::Other),
        }
    }
}

impl From<LibraryError> for Failure {
    fn from(error: LibraryError) -> Self {
        use LibraryError as E;
        let of = |status, error: &LibraryError| Self::of(status, error);
        match error {
            E::Archive(error) => error.into(),
            E::ForeignKernel { kernel } => of(zcu_status::InvalidArgument, &error).kernel(kernel),
            E::Load {
                kernel,
                target,
                ref source,
            } => of(zcu_status::Cuda, &error)
                .kernel(kernel)
                .arch(target)
                .cuda(source),
            E::Abi {
                kernel,
                target,
                parameter,
                wanted,
                wanted_offset,
                found,
            } => of(zcu_status::AbiMismatch, &error)
                .kernel(kernel)
                .arch(target)
                .wanted(format_args!(
                    "parameter {parameter} of {wanted} bytes at {wanted_offset}"
                ))
                .found(found.map_or("none".to_owned(), |(offset, bytes)| {
                    format!("{bytes} bytes at {offset}")
                })),
            _ => of(zcu_status::Other, &error),
        }
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        use DispatchError as E;
        let of = |status, error: &DispatchError| Self::of(status, error);
        match error {
            E::Contract(error) => error.into(),
            E::Library(error) => (*error).into(),
            E::Buffer {
                kernel,
                buffer,
                source,
            } => Self::from(source)
                .about(format_args!("kernel {kernel}: buffer {buffer}"))
                .kernel(kernel)
                .buffer(buffer),
            E::WrongLibrary => of(zcu_status::WrongQueue, &error),
            E::Threads {
                kernel,
                target,
                most,
                found,
            } => of(zcu_status::LaunchLimit, &error)
                .kernel(kernel)
                .arch(target)
                .wanted(format_args!("at most {most} threads"))
                .found(found),
            E::SharedMemory {
                kernel,
                target,
                most,
                found,
            } => of(zcu_status::LaunchLimit, &error)
                .kernel(kernel)
                .arch(target)
                .wanted(format_args!("at most {most} bytes of shared memory"))
                .found(found),
            E::Launch {
                kernel,
                target,
                ref source,
                ..
            } => of(zcu_status::Cuda, &error)
                .kernel(kernel)
                .arch(target)
                .cuda(source),
            _ => of(zcu_status::Other, &error),
        }
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        use QueueError as E;
        let of = |status| Self::of(status, &error);
        match &error {
            E::Cuda(error) => error.clone().into(),
            E::Buffer(error) => error.clone().into(),
            E::RingFull { capacity } => of(zcu_status::RingFull)
                .wanted(format_args!("less than {capacity} pending"))
                .found(capacity),
            E::AlreadyBegun => of(zcu_status::AlreadyBegun),
            E::Capturing => of(zcu_status::Capturing),
            E::NotCapturing => of(zcu_status::NotCapturing),
            E::ForeignToken => of(zcu_status::WrongQueue),
            E::WrongDevice => of(zcu_status::WrongDevice),
            _ => of(zcu_status::Other),
        }
    }
}

impl From<GraphError> for Failure {
    fn from(error: GraphError) -> Self {
        use GraphError as E;
        match error {
            E::UnknownDispatch { wanted, found } => Self::of(zcu_status::UnknownDispatch, &error)
                .wanted(format_args!("less than {found}"))
                .found(wanted.index()),
            E::Dispatch(error) => error.into(),
            E::Cuda(error) => error.into(),
            _ => Self::of(zcu_status::Other, &error),
        }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        use TransferError as E;
        match error {
            E::Buffer(error) => error.into(),
            E::Cuda(error) => error.into(),
            E::Read { wanted, done, .. } => {
                Self::of(zcu_status::Io, &error).wanted(wanted).found(done)
            }
            E::MapRange {
                ref range, bytes, ..
            } => Self::of(zcu_status::Range, &error)
                .wanted(format_args!("{}..{}", range.start, range.end))
                .found(bytes),
            _ => Self::of(zcu_status::Other, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> &'static zcu_error {
        // SAFETY: a test reads it before its thread fails again.
        unsafe { zcu_last_error().as_ref() }.unwrap()
    }

    fn text(pointer: *const c_char) -> &'static str {
        // SAFETY: as above.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap()
    }

    #[test]
    fn panic_becomes_a_status_with_its_text() {
        assert_eq!(guard(|| panic!("lost {}", 7)), zcu_status::Internal);
        assert!(text(last().text).contains("lost 7"));
        assert_eq!(guard(|| panic!("lost")), zcu_status::Internal);
        assert!(text(last().text).ends_with("lost"));
        assert_eq!(guard(|| std::panic::panic_any(7)), zcu_status::Internal);
    }

    #[test]
    fn failure_is_that_of_the_thread_and_survives_success() {
        assert_eq!(
            guard(|| Err(Failure::argument("mine"))),
            zcu_status::InvalidArgument
        );
        std::thread::spawn(|| assert!(zcu_last_error().is_null()))
            .join()
            .unwrap();
        assert_eq!(guard(|| Ok(())), zcu_status::Ok);
        assert_eq!(text(last().text), "mine");
    }

    #[test]
    fn text_with_a_nul_is_kept_whole() {
        guard(|| Err(Failure::argument("a\0b").found("c\0d")));
        assert_eq!((text(last().text), text(last().found)), ("a b", "c d"));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let array: [c_char; 4] = c_array("aä\u{20ac}");
        assert_eq!(array.map(|byte| byte as u8), [b'a', 0xc3, 0xa4, 0]);
        let array: [c_char; 3] = c_array("aä");
        assert_eq!(array.map(|byte| byte as u8), [b'a', 0, 0]);
    }

    #[test]
    fn causes_are_told_once() {
        let error = zinc_contract::kernel("argmax")
            .unwrap()
            .words(&[], &[], &[]);
        let failure = Failure::from(error.unwrap_err());
        assert_eq!(failure.0.text.matches("push block").count(), 1);
        assert_eq!(
            (failure.0.wanted.as_str(), failure.0.found.as_str()),
            ("8", "0")
        );
    }
}
