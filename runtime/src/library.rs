//! Kernels of an archive on one device: chooses the image, loads it on first use and checks its parameters.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cubin_format::{Archive, ArchiveError, Cubin, ImageKind, Suffix, Target, check_abi};
use zinc_contract::{
    CompiledArch, EARLY_SHARED_BYTES, Geometry, KERNELS, Kernel, MAX_BUFFERS, MAX_WORDS,
    PORTABLE_CLUSTER,
};

use crate::device::Device;
use crate::error::CudaError;
use crate::ffi;

/// Bytes kept of the driver's log when an image does not load.
const LOG_BYTES: usize = 8192;
/// Shared memory of a block that needs no permission of the driver, bytes.
const SHARED_WITHOUT_OPTIN: u32 = 48 * 1024;

/// The least compiled architecture whose code can wait for the kernel before it.
const OVERLAP_SINCE: u32 = 90;

/// What the code of `target` was compiled for, as launch rules go by it.
pub fn compiled_arch(target: Target) -> CompiledArch {
    CompiledArch {
        number: target.arch.number(),
        specific: target.arch.suffix() == Suffix::A,
    }
}

/// Why a kernel can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The archive lacks the kernel, has no code for the device, or is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The kernel is not one of the table.
    #[error("kernel {kernel} is not an entry of zinc_contract::KERNELS")]
    ForeignKernel {
        /// The kernel.
        kernel: &'static str,
    },
    /// The driver refused the image or its entry.
    #[error("kernel {kernel} ({target}) can't be loaded")]
    Load {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// What the driver said.
        source: CudaError,
    },
    /// The image is not what the contract describes.
    #[error("kernel {kernel} ({target}): {source}")]
    Image {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The compiled parameters are not those of the contract.
    #[error(
        "kernel {kernel} ({target}): parameter {parameter} should have {wanted} bytes at offset {wanted_offset}, found {}",
        found.map_or("none".to_owned(), |(offset, bytes)| format!("{bytes} at {offset}"))
    )]
    Abi {
        /// The kernel.
        kernel: &'static str,
        /// The image.
        target: Target,
        /// Which parameter, counted from 0.
        parameter: u32,
        /// Bytes that the contract asks for.
        wanted: u64,
        /// Offset that the contract asks for.
        wanted_offset: u64,
        /// Offset and bytes of what was compiled.
        found: Option<(u64, u64)>,
    },
}

/// What a loaded kernel uses on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryInfo {
    /// The image that was chosen.
    pub target: Target,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, bytes.
    pub static_shared_bytes: u32,
    /// The most dynamic shared memory per block, bytes.
    pub max_dynamic_shared_bytes: u32,
    /// Local memory per thread, bytes.
    pub local_bytes: u32,
    /// The most threads per block.
    pub max_threads_per_block: u32,
}

/// A loaded kernel.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) raw: NonNull<ffi::zinc_entry>,
    image: Image,
    pub(crate) info: EntryInfo,
    /// Dynamic shared memory that the driver has agreed to so far.
    agreed_shared: AtomicU32,
    /// Blocks per cluster that the driver has agreed to so far.
    agreed_cluster: AtomicU32,
    /// Whether the code waits by itself for the kernel before it on the stream.
    pub(crate) overlap: bool,
    /// Whether it reads something before that, where it is told that it may.
    early: bool,
}

// SAFETY: entry and image are handles of thread-safe driver functions.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// The architecture that the code was compiled for, which chooses the launch rule.
    pub(crate) fn arch(&self) -> CompiledArch {
        compiled_arch(self.info.target)
    }

    /// Makes sure that a launch with this geometry is possible.
    #[inline]
    pub(crate) fn admit(&self, geometry: &Geometry) -> Result<(), Refused> {
        let threads = geometry.block.iter().product::<u32>();
        if threads > self.info.max_threads_per_block {
            return Err(Refused::Threads {
                most: self.info.max_threads_per_block,
                found: threads,
            });
        }
        if geometry.shared_bytes > self.agreed_shared.load(Ordering::Relaxed) {
            self.raise_shared(geometry.shared_bytes)?;
        }
        if geometry.cluster > self.agreed_cluster.load(Ordering::Relaxed) {
            self.allow_large_clusters()?;
        }
        Ok(())
    }

    /// Whether a launch with this geometry may tell the code to read early: there are such reads, and room for the sign.
    #[inline]
    pub(crate) fn reads_early(&self, geometry: &Geometry) -> bool {
        self.early
            && u64::from(geometry.shared_bytes) + u64::from(EARLY_SHARED_BYTES)
                <= self.agreed_shared.load(Ordering::Relaxed).into()
    }

    #[cold]
    fn allow_large_clusters(&self) -> Result<(), Refused> {
        // SAFETY: context and entry are open.
        ffi::call(|error| unsafe {
            ffi::zinc_entry_allow_large_clusters(self.image.device.raw(), self.raw.as_ptr(), error)
        })
        .map_err(Refused::Cuda)?;
        self.agreed_cluster.store(u32::MAX, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn raise_shared(&self, wanted: u32) -> Result<(), Refused> {
        let most = self.info.max_dynamic_shared_bytes;
        if wanted > most {
            return Err(Refused::Shared {
                most,
                found: wanted,
            });
        }
        // SAFETY: context and entry are open.
        ffi::call(|error| unsafe {
            ffi::zinc_entry_set_dynamic_shared(
                self.image.device.raw(),
                self.raw.as_ptr(),
                most,
                error,
            )
        })
        .map_err(Refused::Cuda)?;
        self.agreed_shared.store(most, Ordering::Relaxed);
        Ok(())
    }
}

/// Why a geometry is impossible for an entry.
pub(crate) enum Refused {
    Threads { most: u32, found: u32 },
    Shared { most: u32, found: u32 },
    Cuda(CudaError),
}

/// An image in the driver; unloaded on drop.
#[derive(Debug)]
struct Image {
    device: Device,
    raw: NonNull<ffi::zinc_image>,
}

impl Image {
    /// Loads a cubin, or PTX that ends in a NUL.
    fn load(device: &Device, bytes: &[u8]) -> Result<Self, CudaError> {
        let mut log: [c_char; LOG_BYTES] = [0; LOG_BYTES];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is a whole file whose hash was checked, and the log has the length given.
        ffi::call(|error| unsafe {
            ffi::zinc_image_load(
                device.raw(),
                bytes.as_ptr().cast::<c_void>(),
                log.as_mut_ptr(),
                log.len(),
                &mut raw,
                error,
            )
        })
        .map_err(|error| error.with_log(ffi::buffer_text(&log)))?;
        Ok(Self {
            device: device.clone(),
            raw: NonNull::new(raw).expect("the shim returns an image on success"),
        })
    }

    fn entry(&self, name: &str) -> Result<NonNull<ffi::zinc_entry>, CudaError> {
        let name = CString::new(name).unwrap_or_default();
        let mut raw = std::ptr::null_mut();
        // SAFETY: context and image are open, the name is NUL-terminated.
        ffi::call(|error| unsafe {
            ffi::zinc_image_entry(
                self.device.raw(),
                self.raw.as_ptr(),
                name.as_ptr(),
                &mut raw,
                error,
            )
        })?;
        Ok(NonNull::new(raw).expect("the shim returns an entry on success"))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: queues and graphs that use the image's entries hold the library.
        let unloaded = ffi::call(|error| unsafe {
            ffi::zinc_image_unload(self.device.raw(), self.raw.as_ptr(), error)
        });
        if let Err(error) = unloaded {
            tracing::debug!(%error, "image not unloaded");
        }
    }
}

#[derive(Debug)]
struct LibraryInner {
    device: Device,
    archive: Archive<'static>,
    /// One slot per kernel of [`KERNELS`].
    entries: Box<[OnceLock<Entry>]>,
    /// Held while a kernel is loaded, so that it is loaded once.
    loading: Mutex<()>,
}

/// The kernels of an archive on a device. Cheap to clone. A kernel is loaded on its first use; see [`Library::load_all`].
#[derive(Debug, Clone)]
pub struct Library(Arc<LibraryInner>);

impl Library {
    /// Takes an archive for a device, and loads nothing yet.
    ///
    /// # Errors
    /// A kernel of the archive has no image that runs on the device: the error names the device's compute capability and
    /// what is embedded.
    pub fn new(device: &Device, archive: Archive<'static>) -> Result<Self, LibraryError> {
        for kernel in archive.kernels() {
            kernel.choose(device.info().capability)?;
        }
        Ok(Self(Arc::new(LibraryInner {
            device: device.clone(),
            archive,
            entries: KERNELS.iter().map(|_| OnceLock::new()).collect(),
            loading: Mutex::new(()),
        })))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Whether both are clones of one library.
    pub(crate) fn is(&self, other: &Library) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The archive.
    pub fn archive(&self) -> &Archive<'static> {
        &self.0.archive
    }

    /// Loads every kernel of the archive that is in the table now, instead of on first use. Returns how many are loaded.
    ///
    /// # Errors
    /// The first kernel that can't be loaded.
    pub fn load_all(&self) -> Result<usize, LibraryError> {
        let mut loaded = 0;
        for kernel in KERNELS {
            if self.0.archive.kernel(kernel.name).is_ok() {
                self.entry(kernel)?;
                loaded += 1;
            }
        }
        Ok(loaded)
    }

    /// Loads a kernel if it isn't yet, and says what it uses.
    ///
    /// # Errors
    /// See [`LibraryError`].
    pub fn load(&self, kernel: &'static Kernel) -> Result<EntryInfo, LibraryError> {
        self.entry(kernel).map(|entry| entry.info)
    }

    /// Blocks of `threads` threads with `dynamic_shared` bytes of shared memory that one multiprocessor holds at once.
    ///
    /// # Errors
    /// See [`LibraryError`].
    pub fn blocks_per_sm(
        &self,
        kernel: &'static Kernel,
        threads: u32,
        dynamic_shared: u32,
    ) -> Result<u32, LibraryError> {
        let entry = self.entry(kernel)?;
        let mut blocks = 0;
        // SAFETY: context and entry are open.
        ffi::call(|error| unsafe {
            ffi::zinc_entry_blocks_per_sm(
                self.device().raw(),
                entry.raw.as_ptr(),
                threads,
                dynamic_shared,
                &mut blocks,
                error,
            )
        })
        .map_err(|source| LibraryError::Load {
            kernel: kernel.name,
            target: entry.info.target,
            source,
        })?;
        Ok(blocks)
    }

    /// The loaded entry of a kernel: after the first use, an index and a load.
    #[inline]
    pub(crate) fn entry(&self, kernel: &'static Kernel) -> Result<&Entry, LibraryError> {
        let offset = std::ptr::from_ref(kernel)
            .addr()
            .wrapping_sub(KERNELS.as_ptr().addr());
        let slot = self.0.entries.get(offset / size_of::<Kernel>());
        match slot.and_then(OnceLock::get) {
            Some(entry) => Ok(entry),
            None => self.load_into(slot, kernel),
        }
    }

    #[cold]
    fn load_into<'a>(
        &'a self,
        slot: Option<&'a OnceLock<Entry>>,
        kernel: &'static Kernel,
    ) -> Result<&'a Entry, LibraryError> {
        let slot = slot.ok_or(LibraryError::ForeignKernel {
            kernel: kernel.name,
        })?;
        let _loading = self
            .0
            .loading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = slot.get() {
            return Ok(entry);
        }
        let entry = self.load_entry(kernel)?;
        Ok(slot.get_or_init(|| entry))
    }

    fn load_entry(&self, kernel: &'static Kernel) -> Result<Entry, LibraryError> {
        let device = self.device();
        let (chosen, mut bytes) = self
            .0
            .archive
            .image_for(kernel.name, device.info().capability)?;
        let target = chosen.target;
        if target.kind == ImageKind::Ptx {
            bytes.push(0);
        }
        let failed = |source| LibraryError::Load {
            kernel: kernel.name,
            target,
            source,
        };
        let symbol = &self.0.archive.kernel(kernel.name)?.entry;
        check_image(&bytes, symbol, kernel, target)?;
        let image = Image::load(device, &bytes).map_err(failed)?;
        let raw = image.entry(symbol).map_err(failed)?;
        let mut info = ffi::zinc_entry_info::default();
        // SAFETY: context and entry are open.
        ffi::call(|error| unsafe {
            ffi::zinc_entry_describe(device.raw(), raw.as_ptr(), &mut info, error)
        })
        .map_err(failed)?;
        check_parameters(device, raw, kernel, target)?;
        tracing::debug!(kernel = kernel.name, %target, registers = info.registers, "kernel loaded");
        let most = device.info().shared_bytes_per_block;
        let info = EntryInfo {
            target,
            registers: info.registers,
            static_shared_bytes: info.static_shared_bytes,
            max_dynamic_shared_bytes: most.saturating_sub(info.static_shared_bytes),
            local_bytes: info.local_bytes,
            max_threads_per_block: info.max_threads_per_block,
        };
        let overlap = kernel.overlap && target.arch.number() >= OVERLAP_SINCE;
        Ok(Entry {
            raw,
            image,
            info,
            agreed_shared: AtomicU32::new(
                SHARED_WITHOUT_OPTIN.saturating_sub(info.static_shared_bytes),
            ),
            agreed_cluster: AtomicU32::new(PORTABLE_CLUSTER),
            overlap,
            early: overlap && !kernel.early.is_empty(),
        })
    }
}

/// Compares the parameters that a cubin describes with the contract, and their number above all: the driver can only be
/// asked for more by a call that fails, which memory checkers report. Other images have nothing to read here.
fn check_image(
    bytes: &[u8],
    symbol: &str,
    kernel: &'static Kernel,
    target: Target,
) -> Result<(), LibraryError> {
    const ELF: &[u8] = b"\x7fELF";
    if !bytes.starts_with(ELF) {
        return Ok(());
    }
    let refused = |source: Box<dyn std::error::Error + Send + Sync>| LibraryError::Image {
        kernel: kernel.name,
        target,
        source,
    };
    let cubin = Cubin::parse(bytes).map_err(|error| refused(error.into()))?;
    let entry = cubin.entry(symbol).map_err(|error| refused(error.into()))?;
    let push_bytes = 4 * kernel.fields.len() as u32;
    check_abi(entry, kernel.buffers.len(), push_bytes).map_err(|error| refused(error.into()))
}

/// Compares the parameters that the driver sees with the contract: a pointer per buffer, then the push struct.
fn check_parameters(
    device: &Device,
    entry: NonNull<ffi::zinc_entry>,
    kernel: &'static Kernel,
    target: Target,
) -> Result<(), LibraryError> {
    let buffers = kernel.buffers.len();
    let words = kernel.fields.len();
    assert!(
        buffers <= MAX_BUFFERS && words <= MAX_WORDS,
        "the catalog admits no kernel beyond these limits"
    );
    let pointers = (0..buffers).map(|at| (8 * at as u64, 8));
    let push = (words > 0).then_some((8 * buffers as u64, 4 * words as u64));
    for (parameter, (wanted_offset, wanted)) in (0..).zip(pointers.chain(push)) {
        let (mut exists, mut offset, mut bytes) = (0, 0, 0);
        // SAFETY: context and entry are open.
        ffi::call(|error| unsafe {
            ffi::zinc_entry_parameter(
                device.raw(),
                entry.as_ptr(),
                parameter,
                &mut exists,
                &mut offset,
                &mut bytes,
                error,
            )
        })
        .map_err(|source| LibraryError::Load {
            kernel: kernel.name,
            target,
            source,
        })?;
        let found = (exists != 0).then_some((offset, bytes));
        if found != Some((wanted_offset, wanted)) {
            return Err(LibraryError::Abi {
                kernel: kernel.name,
                target,
                parameter,
                wanted,
                wanted_offset,
                found,
            });
        }
    }
    Ok(())
}
