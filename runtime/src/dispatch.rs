//! One dispatch: checks it against the contract and the device, and packs its arguments.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cubin_format::Target;
use zinc_contract::{Binding, ContractError, Geometry, Kernel, MAX_BUFFERS, MAX_WORDS};

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

/// Whether a launch may start while the one before it on the stream still runs: its code waits for that one, and what it
/// reads before it waits is written by nobody.
#[inline]
pub(crate) fn overlaps(entry: &Entry, kernel: &Kernel, buffers: &[BufferSlice<'_>]) -> bool {
    entry.overlap && (kernel.early.is_empty() || early_is_constant(kernel, buffers))
}

#[inline(never)]
fn early_is_constant(kernel: &Kernel, buffers: &[BufferSlice<'_>]) -> bool {
    kernel.early.iter().all(|at| {
        let slice = buffers.get(usize::from(*at));
        slice.is_some_and(|slice| slice.is_unbound() || slice.is_constant())
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

    /// The record of a launch; it borrows the arguments by a raw pointer. `overlap` is what [`overlaps`] says.
    #[inline]
    pub(crate) fn launch(
        &self,
        entry: &Entry,
        geometry: &Geometry,
        overlap: bool,
    ) -> ffi::zinc_launch {
        ffi::zinc_launch {
            entry: entry.raw.as_ptr(),
            arguments: self.packed.as_ptr().cast::<c_void>(),
            argument_bytes: self.bytes,
            grid: geometry.grid,
            block: geometry.block,
            shared_bytes: geometry.shared_bytes,
            overlap: overlap.into(),
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
    /// What [`overlaps`] said when it was recorded; it stays true, since buffers stay constant.
    pub(crate) overlap: bool,
}

impl Recorded {
    pub(crate) fn new(
        kernel: &'static Kernel,
        entry: &Entry,
        geometry: Option<Geometry>,
        words: &[u32],
        buffers: &[BufferSlice<'_>],
    ) -> Self {
        Self {
            kernel,
            bindings: buffers.iter().map(BufferSlice::binding).collect(),
            words: words.into(),
            geometry,
            cluster: geometry.unwrap_or(PLACEHOLDER).cluster,
            overlap: overlaps(entry, kernel, buffers),
        }
    }

    pub(crate) fn arguments(&self, words: &[u32]) -> Arguments {
        Arguments::pack(self.bindings.iter().map(|binding| binding.address), words)
    }
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
