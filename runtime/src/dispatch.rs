//! One dispatch: checks it against the contract and the device, and packs its arguments.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cubin_format::Target;
use zinc_contract::{
    Binding, ContractError, EARLY_SHARED_BYTES, Geometry, Kernel, MAX_BUFFERS, MAX_WORDS,
};

use crate::buffer::{BufferError, BufferSlice};
use crate::device::Device;
use crate::error::CudaError;
use crate::ffi;
use crate::library::{Entry, Library, LibraryError, Refused};

/// Why a dispatch was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// Words or buffers break the contract.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The kernel can't be used on this device.
    #[error(transparent)]
    Library(Box<LibraryError>),
    /// A buffer may not be used here.
    #[error("kernel {kernel}: buffer {buffer}")]
    Buffer {
        /// The kernel.
        kernel: &'static str,
        /// The buffer's name in the contract.
        buffer: &'static str,
        /// Why: `WrongDevice`, `OtherStream` or `Constant`.
        source: BufferError,
    },
    /// The command list was recorded with other loaded kernels than the queue's.
    #[error("the command list was recorded with another library than the queue's")]
    WrongLibrary,
    /// The compiled code can't run with so many threads in a block.
    #[error("kernel {kernel} ({target}): block of {found} threads, at most {most} are possible")]
    Threads {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// The most threads of a block.
        most: u32,
        /// What the launch rule asks for.
        found: u32,
    },
    /// The device has not so much shared memory for a block.
    #[error(
        "kernel {kernel} ({target}): {found} bytes of dynamic shared memory, at most {most} are possible"
    )]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// The most bytes.
        most: u32,
        /// What the launch rule asks for.
        found: u32,
    },
    /// The driver refused the launch, or earlier asynchronous work failed.
    #[error("kernel {kernel} ({target}), dispatch {index} of its list, failed")]
    Launch {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// Position in the command list; 0 for a single dispatch.
        index: u32,
        /// What the driver said.
        source: CudaError,
    },
}

impl From<LibraryError> for DispatchError {
    fn from(error: LibraryError) -> Self {
        Self::Library(Box::new(error))
    }
}

/// A dispatch that passed every check.
pub(crate) struct Checked<'a> {
    pub(crate) entry: &'a Entry,
    /// `None`: there is nothing to do.
    pub(crate) geometry: Option<Geometry>,
}

/// Checks words and buffers against the contract, and the geometry against device and compiled code. `stream` is where the
/// dispatch is submitted at once, none where it is kept for later.
#[inline]
pub(crate) fn check<'a>(
    library: &'a Library,
    kernel: &'static Kernel,
    words: &[u32],
    buffers: &[BufferSlice<'_>],
    stream: Option<usize>,
) -> Result<Checked<'a>, DispatchError> {
    let mut bindings = [Binding::UNBOUND; MAX_BUFFERS];
    for (at, (binding, buffer)) in bindings.iter_mut().zip(buffers).enumerate() {
        if let Err(source) = buffer.admit(library.device(), stream) {
            return Err(buffer_error(kernel, at, source));
        }
        if buffer.is_constant() && writes(kernel, at) {
            return Err(buffer_error(kernel, at, BufferError::Constant));
        }
        *binding = buffer.binding();
    }
    let bindings = bindings
        .get(..buffers.len())
        .ok_or_else(|| buffer_count(kernel, buffers.len()))?;
    check_bindings(library, kernel, words, bindings)
}

/// Whether the kernel writes its buffer number `at`.
pub(crate) fn writes(kernel: &Kernel, at: usize) -> bool {
    let buffer = kernel.buffers.get(at);
    buffer.is_some_and(|buffer| buffer.access.writes())
}

/// What the dispatch before another one on its stream may write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Before<'a> {
    /// Anything: it is not known, or no dispatch.
    Unknown,
    /// Its kernel and what that was given.
    Dispatch(&'static Kernel, &'a [Binding]),
}

impl Before<'_> {
    /// Whether it leaves the memory of a binding as it is.
    fn leaves(&self, other: Binding) -> bool {
        let Self::Dispatch(kernel, bindings) = self else {
            return false;
        };
        bindings.iter().enumerate().all(|(at, binding)| {
            let apart = binding.address >= other.address.saturating_add(other.bytes)
                || other.address >= binding.address.saturating_add(binding.bytes);
            apart || !writes(kernel, at)
        })
    }
}

/// The dispatch that was given to a stream last, where nothing else came after it.
#[derive(Debug)]
pub(crate) struct Last {
    kernel: Option<&'static Kernel>,
    bindings: [Binding; MAX_BUFFERS],
    count: usize,
}

impl Last {
    /// Nobody knows which.
    pub(crate) const UNKNOWN: Self = Self {
        kernel: None,
        bindings: [Binding::UNBOUND; MAX_BUFFERS],
        count: 0,
    };

    /// Something else came, or may have come.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.kernel = None;
    }

    #[inline]
    pub(crate) fn set(
        &mut self,
        kernel: &'static Kernel,
        bindings: impl ExactSizeIterator<Item = Binding>,
    ) {
        self.kernel = Some(kernel);
        self.count = bindings.len().min(MAX_BUFFERS);
        for (slot, binding) in self.bindings.iter_mut().zip(bindings) {
            *slot = binding;
        }
    }

    pub(crate) fn get(&self) -> Before<'_> {
        match self.kernel {
            Some(kernel) => Before::Dispatch(kernel, &self.bindings[..self.count]),
            None => Before::Unknown,
        }
    }
}

/// Whether a launch may read before it waits for the dispatch before it on its stream what its kernel reads early: that
/// one writes nothing of it. What was written earlier is there, since a kernel that overlaps waits before it lets the next
/// one start.
#[inline]
pub(crate) fn reads_early(
    entry: &Entry,
    kernel: &'static Kernel,
    geometry: &Geometry,
    buffers: &[BufferSlice<'_>],
    last: &Last,
) -> bool {
    entry.reads_early(geometry)
        && (early_is_constant(kernel, buffers)
            || early_is_left(kernel, last.get(), |at| {
                buffers.get(at).map(BufferSlice::binding)
            }))
}

#[inline(never)]
fn early_is_constant(kernel: &Kernel, buffers: &[BufferSlice<'_>]) -> bool {
    kernel.early.iter().all(|at| {
        let slice = buffers.get(usize::from(*at));
        slice.is_some_and(|slice| slice.is_unbound() || slice.is_constant())
    })
}

#[inline(never)]
fn early_is_left(
    kernel: &Kernel,
    before: Before<'_>,
    binding: impl Fn(usize) -> Option<Binding>,
) -> bool {
    kernel.early.iter().all(|at| {
        let binding = binding(usize::from(*at));
        binding.is_some_and(|binding| before.leaves(binding))
    })
}

/// As [`check`], for bindings that were taken from slices before.
#[inline]
pub(crate) fn check_bindings<'a>(
    library: &'a Library,
    kernel: &'static Kernel,
    words: &[u32],
    bindings: &[Binding],
) -> Result<Checked<'a>, DispatchError> {
    kernel.check(words, bindings)?;
    let entry = library.entry(kernel)?;
    let geometry = kernel.geometry(entry.arch(), library.device().info().sm_count, words)?;
    if let Some(geometry) = &geometry {
        entry
            .admit(geometry)
            .map_err(|refused| refusal(kernel, entry, refused))?;
    }
    Ok(Checked { entry, geometry })
}

#[cold]
fn buffer_error(kernel: &'static Kernel, at: usize, source: BufferError) -> DispatchError {
    DispatchError::Buffer {
        kernel: kernel.name,
        buffer: kernel.buffers.get(at).map_or("", |buffer| buffer.name),
        source,
    }
}

#[cold]
fn buffer_count(kernel: &'static Kernel, found: usize) -> ContractError {
    ContractError::BufferCount {
        kernel: kernel.name,
        wanted: kernel.buffers.len(),
        found,
    }
}

#[cold]
pub(crate) fn refusal(kernel: &'static Kernel, entry: &Entry, refused: Refused) -> DispatchError {
    let (kernel, target) = (kernel.name, entry.info.target);
    match refused {
        Refused::Threads { most, found } => DispatchError::Threads {
            kernel,
            target,
            most,
            found,
        },
        Refused::Shared { most, found } => DispatchError::SharedMemory {
            kernel,
            target,
            most,
            found,
        },
        Refused::Cuda(source) => DispatchError::Launch {
            kernel,
            target,
            index: 0,
            source,
        },
    }
}

/// Arguments of one launch as the shim takes them: an address per buffer, then the words.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The first `bytes` bytes are written.
    packed: [MaybeUninit<u64>; MAX_BUFFERS + MAX_WORDS / 2],
    bytes: u32,
}

impl Arguments {
    /// Packs addresses and words; what exceeds the limits of the catalog is left out.
    #[inline]
    pub(crate) fn pack(addresses: impl ExactSizeIterator<Item = u64>, words: &[u32]) -> Self {
        let pointers = addresses.len().min(MAX_BUFFERS);
        let words = &words[..words.len().min(MAX_WORDS)];
        let mut packed = [MaybeUninit::uninit(); MAX_BUFFERS + MAX_WORDS / 2];
        for (slot, address) in packed.iter_mut().zip(addresses.take(pointers)) {
            slot.write(address);
        }
        // SAFETY: MAX_WORDS words fit behind MAX_BUFFERS addresses, and both are plain integers.
        unsafe {
            std::ptr::copy_nonoverlapping(
                words.as_ptr(),
                packed.as_mut_ptr().add(pointers).cast::<u32>(),
                words.len(),
            );
        }
        Self {
            packed,
            bytes: 8 * pointers as u32 + 4 * words.len() as u32,
        }
    }

    /// The record of a launch; it borrows the arguments by a raw pointer. `early` is what [`reads_early`] says.
    #[inline]
    pub(crate) fn launch(
        &self,
        entry: &Entry,
        geometry: &Geometry,
        early: bool,
    ) -> ffi::zinc_launch {
        ffi::zinc_launch {
            entry: entry.raw.as_ptr(),
            arguments: self.packed.as_ptr().cast::<c_void>(),
            argument_bytes: self.bytes,
            grid: geometry.grid,
            block: geometry.block,
            shared_bytes: geometry.shared_bytes + if early { EARLY_SHARED_BYTES } else { 0 },
            overlap: entry.overlap.into(),
            cluster: geometry.cluster,
        }
    }
}

/// A dispatch that was recorded: what is needed to check and pack it again with other words.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) kernel: &'static Kernel,
    pub(crate) bindings: Box<[Binding]>,
    pub(crate) words: Box<[u32]>,
    /// `None`: there is nothing to do with these words.
    pub(crate) geometry: Option<Geometry>,
    /// Blocks per cluster as recorded, which a graph keeps.
    pub(crate) cluster: u32,
    /// Whether what the kernel reads early was constant when it was recorded; it stays so.
    early_is_constant: bool,
    /// Whether nothing runs between the dispatch that was recorded before it and this one.
    pub(crate) follows: bool,
}

impl Recorded {
    pub(crate) fn new(
        kernel: &'static Kernel,
        geometry: Option<Geometry>,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
        follows: bool,
    ) -> Self {
        Self {
            kernel,
            bindings: buffers.iter().map(BufferSlice::binding).collect(),
            words: words.into(),
            geometry,
            cluster: geometry.unwrap_or(PLACEHOLDER).cluster,
            early_is_constant: early_is_constant(kernel, buffers),
            follows,
        }
    }

    pub(crate) fn arguments(&self, words: &[u32]) -> Arguments {
        Arguments::pack(self.bindings.iter().map(|binding| binding.address), words)
    }
}

/// What [`reads_early`] says of number `at` of recorded dispatches, launched with `geometry`.
pub(crate) fn recorded_reads_early(
    entry: &Entry,
    dispatches: &[Recorded],
    at: usize,
    geometry: &Geometry,
) -> bool {
    let recorded = &dispatches[at];
    entry.reads_early(geometry)
        && (recorded.early_is_constant
            || early_is_left(recorded.kernel, before(dispatches, at), |at| {
                recorded.bindings.get(at).copied()
            }))
}

/// The dispatch that runs before number `at`: those with nothing to do don't.
fn before(dispatches: &[Recorded], at: usize) -> Before<'_> {
    for at in (1..=at).rev() {
        let before = &dispatches[at - 1];
        if !dispatches[at].follows {
            break;
        }
        if before.geometry.is_some() {
            return Before::Dispatch(before.kernel, &before.bindings);
        }
    }
    Before::Unknown
}

/// What stands in a graph for a dispatch that has nothing to do: it is disabled before the graph can run.
pub(crate) const PLACEHOLDER: Geometry = Geometry {
    grid: [1; 3],
    block: [1; 3],
    cluster: 1,
    shared_bytes: 0,
};

/// Submits launches on a stream in order; on failure the index is that of the launch that failed.
pub(crate) fn submit(
    device: &Device,
    stream: *mut ffi::zinc_stream,
    launches: &[ffi::zinc_launch],
) -> Result<(), CudaError> {
    // SAFETY: context and stream are open; entries are held by the library and arguments by the caller's borrow.
    ffi::call(|error| unsafe {
        ffi::zinc_submit(
            device.raw(),
            stream,
            launches.as_ptr(),
            launches.len() as u32,
            error,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(arguments: &Arguments) -> &[u8] {
        // SAFETY: so many bytes are written.
        unsafe {
            std::slice::from_raw_parts(arguments.packed.as_ptr().cast(), arguments.bytes as usize)
        }
    }

    fn packed(addresses: &[u64], words: &[u32]) -> Vec<u8> {
        let addresses = addresses.iter().flat_map(|address| address.to_ne_bytes());
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        addresses.chain(words).collect()
    }

    #[test]
    fn arguments_hold_addresses_then_words_without_a_gap() {
        let (addresses, words) = ([0x1100, 0x2200], [7, 8, 9]);
        let arguments = Arguments::pack(addresses.into_iter(), &words);
        assert_eq!(written(&arguments), packed(&addresses, &words));
    }

    #[test]
    fn arguments_beyond_the_limits_are_cut_and_stay_in_bounds() {
        let arguments = Arguments::pack([1; 40].into_iter(), &[2; 80]);
        let wanted = packed(&[1; MAX_BUFFERS], &[2; MAX_WORDS]);
        assert_eq!(written(&arguments), wanted);
    }
}
