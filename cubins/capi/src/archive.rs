//! Archives of compiled kernels: what is in them, and the images themselves for engines with their own driver loader.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use cubin_format::{Archive, Capability, ImageKind, KernelEntry, Target, TargetEntry};

use crate::pointer::{free, out, out_handle, reference, target_of, text, values};
use crate::status::{Failure, c_array, c_text, guard, zcu_status};

/// An archive of compiled kernels. It may be shared between threads.
#[derive(Debug)]
pub struct zcu_archive {
    archive: Archive<'static>,
    compiler: CString,
    /// Name, family, summary and entry of each kernel.
    texts: Box<[[CString; 4]]>,
}

/// What an archive is. The text lives as long as the archive.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_archive_info {
    /// The exact build of the compiler.
    pub compiler: *const c_char,
    /// SHA-256 of the sources that it was compiled from.
    pub source_sha256: [u8; 32],
    /// Bytes of the archive.
    pub bytes: u64,
    /// Kernels.
    pub kernel_count: usize,
    /// Images of all kernels.
    pub image_count: usize,
}

/// A kernel of an archive. The texts live as long as the archive.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_archive_kernel_info {
    /// Name.
    pub name: *const c_char,
    /// Family.
    pub family: *const c_char,
    /// One sentence.
    pub summary: *const c_char,
    /// Symbol of the entry in its images.
    pub entry: *const c_char,
    /// Images.
    pub image_count: usize,
    /// Whether it is beyond the 110.
    pub extended: bool,
}

/// An image of a kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_image_info {
    /// What it is compiled for, such as "sm_90" (machine code) or "compute_120" (PTX).
    pub target: [c_char; 16],
    /// The number in it, such as 90.
    pub arch: u32,
    /// Whether it is PTX, which the driver compiles when it is loaded.
    pub ptx: bool,
    /// Bytes of the image.
    pub bytes: u64,
    /// Bytes in the archive, where it is compressed.
    pub stored_bytes: u64,
    /// SHA-256 of the image.
    pub sha256: [u8; 32],
    /// Registers per thread; 0 for PTX, as are the next ones.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Local memory of a thread, bytes.
    pub local_bytes: u32,
    /// Register spills of a thread, bytes stored and loaded.
    pub spill_bytes: u64,
}

/// An image with its bytes. It may be shared between threads.
#[derive(Debug)]
pub struct zcu_image {
    info: zcu_image_info,
    entry: CString,
    /// The image, and a NUL behind it.
    bytes: Vec<u8>,
}

impl zcu_archive {
    fn new(archive: Archive<'static>) -> Self {
        let texts = archive.kernels().iter().map(|kernel| {
            [&kernel.name, &kernel.family, &kernel.summary, &kernel.entry].map(|text| c_text(text))
        });
        Self {
            compiler: c_text(&archive.metadata().compiler),
            texts: texts.collect(),
            archive,
        }
    }

    pub(crate) fn archive(&self) -> &Archive<'static> {
        &self.archive
    }

    fn kernel_at(&self, index: usize) -> Result<&KernelEntry, Failure> {
        let kernels = self.archive.kernels();
        kernels
            .get(index)
            .ok_or_else(|| Failure::index("kernel", index, kernels.len()))
    }
}

impl zcu_image_info {
    fn new(entry: &TargetEntry) -> Self {
        Self {
            target: c_array(&entry.target.to_string()),
            arch: entry.target.arch.number(),
            ptx: entry.target.kind == ImageKind::Ptx,
            bytes: entry.raw_bytes,
            stored_bytes: entry.stored_bytes,
            sha256: entry.raw_hash.0,
            registers: entry.resources.registers,
            shared_bytes: entry.resources.shared_bytes,
            local_bytes: entry.resources.local_bytes,
            spill_bytes: entry.resources.spill_bytes(),
        }
    }
}

impl zcu_image {
    fn extract(archive: &Archive<'_>, kernel: &str, target: Target) -> Result<Self, Failure> {
        let entry = archive.kernel(kernel)?;
        let mut bytes = archive.image(kernel, target)?;
        bytes.push(0);
        Ok(Self {
            info: zcu_image_info::new(entry.target(target)?),
            entry: c_text(&entry.entry),
            bytes,
        })
    }
}

/// Opens the archive that is part of the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_open_embedded(archive: *mut *mut zcu_archive) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out_handle(archive, "archive") }?;
        out.put(zcu_archive::new(zinc_cuda::archive()?));
        Ok(())
    })
}

/// Opens an archive in memory, of which it takes a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_open_memory(
    data: *const c_void,
    bytes: usize,
    archive: *mut *mut zcu_archive,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for inputs and outputs.
        let (out, data) = unsafe {
            (
                out_handle(archive, "archive")?,
                values(data.cast::<u8>(), bytes, "data")?,
            )
        };
        out.put(zcu_archive::new(Archive::from_vec(data.to_vec())?));
        Ok(())
    })
}

/// Opens an archive file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_open_file(
    path: *const c_char,
    archive: *mut *mut zcu_archive,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for texts and outputs.
        let (out, path) = unsafe { (out_handle(archive, "archive")?, text(path, "path")?) };
        out.put(zcu_archive::new(Archive::read(Path::new(path))?));
        Ok(())
    })
}

/// Frees an archive; NULL is nothing. Libraries and images made from it stay usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_free(archive: *mut zcu_archive) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(archive) }
}

/// What an archive is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_describe(
    archive: *const zcu_archive,
    info: *mut zcu_archive_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (archive, out) = unsafe { (reference(archive, "archive")?, out(info, "info")?) };
        let kernels = archive.archive.kernels();
        out.put(zcu_archive_info {
            compiler: archive.compiler.as_ptr(),
            source_sha256: archive.archive.metadata().source_hash.0,
            bytes: archive.archive.bytes().len() as u64,
            kernel_count: kernels.len(),
            image_count: kernels.iter().map(|kernel| kernel.targets.len()).sum(),
        });
        Ok(())
    })
}

/// A kernel of an archive, by its index. They are sorted by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_kernel(
    archive: *const zcu_archive,
    index: usize,
    info: *mut zcu_archive_kernel_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (archive, out) = unsafe { (reference(archive, "archive")?, out(info, "info")?) };
        let kernel = archive.kernel_at(index)?;
        let [name, family, summary, entry] =
            [0, 1, 2, 3].map(|at: usize| archive.texts[index][at].as_ptr());
        out.put(zcu_archive_kernel_info {
            name,
            family,
            summary,
            entry,
            image_count: kernel.targets.len(),
            extended: kernel.extended,
        });
        Ok(())
    })
}

/// Index of the kernel with this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_find(
    archive: *const zcu_archive,
    kernel: *const c_char,
    index: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, texts and outputs.
        let (archive, name, out) = unsafe {
            (
                reference(archive, "archive")?,
                text(kernel, "kernel")?,
                out(index, "index")?,
            )
        };
        let kernels = archive.archive.kernels();
        let found = archive.archive.kernel(name)?;
        let at = kernels
            .iter()
            .position(|kernel| std::ptr::eq(kernel, found));
        out.put(at.unwrap_or_default());
        Ok(())
    })
}

/// What one image of a kernel is, by the kernel's index and its own, without extracting it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_image(
    archive: *const zcu_archive,
    kernel: usize,
    image: usize,
    info: *mut zcu_image_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (archive, out) = unsafe { (reference(archive, "archive")?, out(info, "info")?) };
        let kernel = archive.kernel_at(kernel)?;
        let entry = kernel.targets.get(image).ok_or_else(|| {
            Failure::index("image", image, kernel.targets.len()).kernel(&kernel.name)
        })?;
        out.put(zcu_image_info::new(entry));
        Ok(())
    })
}

/// Extracts every image and compares its hash. images becomes how many there are; it may be NULL. The failure is that of the
/// first damaged one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_archive_verify(
    archive: *const zcu_archive,
    images: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let archive = unsafe { reference(archive, "archive") }?;
        let checked = archive.archive.verify_all();
        let all = checked.len();
        if !images.is_null() {
            // SAFETY: as above.
            unsafe { out(images, "images") }?.put(all);
        }
        let mut damaged = checked.into_iter().filter_map(|image| image.result.err());
        match damaged.next() {
            None => Ok(()),
            Some(first) => {
                let count = 1 + damaged.count();
                Err(Failure::from(first).about(format_args!("{count} of {all} images are damaged")))
            }
        }
    })
}

/// Extracts the image of a kernel for a target, such as "sm_90" or "compute_120".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_extract(
    archive: *const zcu_archive,
    kernel: *const c_char,
    target: *const c_char,
    image: *mut *mut zcu_image,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, texts and outputs.
        let (out, archive, kernel, target) = unsafe {
            (
                out_handle(image, "image")?,
                reference(archive, "archive")?,
                text(kernel, "kernel")?,
                target_of(target)?,
            )
        };
        out.put(zcu_image::extract(&archive.archive, kernel, target)?);
        Ok(())
    })
}

/// Extracts the image of a kernel to load on a device of this compute capability: exact machine code, else the highest of
/// the same major revision that runs there, else the highest PTX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_extract_for(
    archive: *const zcu_archive,
    kernel: *const c_char,
    major: u32,
    minor: u32,
    image: *mut *mut zcu_image,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, texts and outputs.
        let (out, archive, kernel) = unsafe {
            (
                out_handle(image, "image")?,
                reference(archive, "archive")?,
                text(kernel, "kernel")?,
            )
        };
        let archive = &archive.archive;
        let chosen = archive
            .kernel(kernel)?
            .choose(Capability::new(major, minor))?;
        out.put(zcu_image::extract(archive, kernel, chosen.target)?);
        Ok(())
    })
}

/// What an image is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_describe(
    image: *const zcu_image,
    info: *mut zcu_image_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (image, out) = unsafe { (reference(image, "image")?, out(info, "info")?) };
        out.put(image.info);
        Ok(())
    })
}

/// The bytes of an image, with a NUL behind them that they do not count: what cuModuleLoadData and cuLibraryLoadData take.
/// They live as long as the image. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_data(image: *const zcu_image) -> *const c_void {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(image, "image") }
        .map_or(std::ptr::null(), |image| image.bytes.as_ptr().cast())
}

/// How many bytes an image has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_bytes(image: *const zcu_image) -> usize {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(image, "image") }.map_or(0, |image| image.bytes.len() - 1)
}

/// The symbol of the entry, for cuModuleGetFunction. It lives as long as the image. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_entry(image: *const zcu_image) -> *const c_char {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(image, "image") }.map_or(std::ptr::null(), |image| image.entry.as_ptr())
}

/// Frees an image; NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_image_free(image: *mut zcu_image) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(image) }
}
