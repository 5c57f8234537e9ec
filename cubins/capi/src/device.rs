//! Devices, and the kernels that are loaded on them.

use std::ffi::{c_char, c_void};

use zinc_runtime::{Device, DeviceInfo, DeviceSelector, Driver, Library};

use crate::archive::zcu_archive;
use crate::contract::zcu_kernel;
use crate::pointer::{free, optional, out, out_handle, reference, refuse, text};
use crate::status::{Failure, c_array, guard, zcu_status};

/// An open device: its primary context, or a context of another CUDA client. It may be shared between threads.
#[derive(Debug)]
pub struct zcu_device(Device);

/// The kernels of an archive on a device. It may be shared between threads.
#[derive(Debug)]
pub struct zcu_library(Library);

/// What the driver says of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_device_info {
    /// Product name.
    pub name: [c_char; 256],
    /// Domain, bus, device and function, such as "0000:3b:00.0".
    pub pci_bus_id: [c_char; 32],
    /// Identity, such as "GPU-1b4a...".
    pub uuid: [c_char; 48],
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// The driver's number of the device.
    pub ordinal: u32,
    /// Compute capability, the 9 of 9.0.
    pub capability_major: u32,
    /// Compute capability, the 0 of 9.0.
    pub capability_minor: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Second-level cache, bytes.
    pub l2_bytes: u32,
    /// The most shared memory that a block may have, bytes.
    pub shared_bytes_per_block: u32,
    /// Memory clock, kHz; 0 where the driver does not say.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, bits.
    pub memory_bus_bits: u32,
    /// Whether the device shares the host's memory.
    pub integrated: bool,
}

/// What a loaded kernel uses on its device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_entry_info {
    /// The image that was chosen, such as "sm_90".
    pub target: [c_char; 16],
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// The most dynamic shared memory of a block, bytes.
    pub max_dynamic_shared_bytes: u32,
    /// Local memory of a thread, bytes.
    pub local_bytes: u32,
    /// The most threads of a block.
    pub max_threads_per_block: u32,
}

impl zcu_device {
    pub(crate) fn device(&self) -> &Device {
        &self.0
    }
}

impl zcu_library {
    pub(crate) fn library(&self) -> &Library {
        &self.0
    }
}

impl zcu_device_info {
    fn new(info: &DeviceInfo) -> Self {
        Self {
            name: c_array(&info.name),
            pci_bus_id: c_array(&info.pci_bus_id),
            uuid: c_array(&info.uuid.to_string()),
            memory_bytes: info.memory_bytes,
            ordinal: info.ordinal,
            capability_major: info.capability.major,
            capability_minor: info.capability.minor,
            sm_count: info.sm_count,
            warp_size: info.warp_size,
            l2_bytes: info.l2_bytes,
            shared_bytes_per_block: info.shared_bytes_per_block,
            memory_clock_khz: info.memory_clock_khz,
            memory_bus_bits: info.memory_bus_bits,
            integrated: info.integrated,
        }
    }
}

/// The machine's driver, or the failure of a machine without one.
fn driver() -> Result<Driver, Failure> {
    Ok(Driver::load()?)
}

/// The CUDA version that this machine's driver supports, such as 13000 for 13.0. ZCU_STATUS_NO_DEVICE where there is no
/// driver: the text lists every place that was tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_driver_version(version: *mut u32) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out(version, "version") }?;
        out.put(driver()?.version().0);
        Ok(())
    })
}

/// How many devices there are. Opens none. ZCU_STATUS_NO_DEVICE where there is no driver or the driver has no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_count(count: *mut u32) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out(count, "count") }?;
        out.put(driver()?.devices()?.len() as u32);
        Ok(())
    })
}

/// What the driver says of a device, by its ordinal. Opens none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_at(ordinal: u32, info: *mut zcu_device_info) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out(info, "info") }?;
        let devices = driver()?.devices()?;
        let chosen = zinc_runtime::choose(&devices, &DeviceSelector::Ordinal(ordinal))?;
        out.put(zcu_device_info::new(&chosen));
        Ok(())
    })
}

/// Opens a device. selector is "best" (the highest compute capability, then the most multiprocessors), an ordinal ("1"), a
/// PCI address ("0000:3b:00.0") or a UUID ("GPU-..."); NULL or "auto" is what the environment variable ZINC_DEVICE says, else
/// the best. ZCU_STATUS_NO_DEVICE where this machine has no usable GPU: the text lists every place that was tried.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_open(
    selector: *const c_char,
    device: *mut *mut zcu_device,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for texts and outputs.
        let (out, selector) = unsafe {
            (
                out_handle(device, "device")?,
                match selector.is_null() {
                    true => "auto",
                    false => text(selector, "selector")?,
                },
            )
        };
        out.put(zcu_device(Device::open(&selector.parse()?)?));
        Ok(())
    })
}

/// A device around a CUcontext of the caller, which has to outlive it and everything made from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_from_context(
    context: *mut c_void,
    device: *mut *mut zcu_device,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out_handle(device, "device") }?;
        refuse(context.cast::<u8>(), "context")?;
        // SAFETY: the caller vouches for the context, as this function asks.
        out.put(zcu_device(unsafe {
            Device::from_raw_context(&driver()?, context)
        }?));
        Ok(())
    })
}

/// Frees a device; NULL is nothing. The context is released when everything made from the device is freed too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_free(device: *mut zcu_device) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(device) }
}

/// What the driver says of an open device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_describe(
    device: *const zcu_device,
    info: *mut zcu_device_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (device, out) = unsafe { (reference(device, "device")?, out(info, "info")?) };
        out.put(zcu_device_info::new(device.0.info()));
        Ok(())
    })
}

/// Free and total device memory, bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_memory(
    device: *const zcu_device,
    free: *mut u64,
    total: *mut u64,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (device, out_free, out_total) = unsafe {
            (
                reference(device, "device")?,
                out(free, "free")?,
                out(total, "total")?,
            )
        };
        let (free, total) = device.0.memory()?;
        out_free.put(free);
        out_total.put(total);
        Ok(())
    })
}

/// Waits until everything on the device is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_synchronize(device: *const zcu_device) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let device = unsafe { reference(device, "device") }?;
        Ok(device.0.synchronize()?)
    })
}

/// The CUcontext, for other CUDA clients; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_device_context(device: *const zcu_device) -> *mut c_void {
    // SAFETY: the caller keeps the header's rules for handles.
    unsafe { reference(device, "device") }
        .map_or(std::ptr::null_mut(), |device| device.0.raw_context())
}

/// Takes the kernels of an archive for a device; NULL is the archive that is part of the library. Each kernel is loaded when
/// it is first used. ZCU_STATUS_UNSUPPORTED_DEVICE where a kernel has no image for the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_library_create(
    device: *const zcu_device,
    archive: *const zcu_archive,
    library: *mut *mut zcu_library,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (out, device, archive) = unsafe {
            (
                out_handle(library, "library")?,
                reference(device, "device")?,
                optional(archive, "archive")?,
            )
        };
        let archive = match archive {
            Some(archive) => archive.archive().clone(),
            None => zinc_cuda::archive()?,
        };
        out.put(zcu_library(Library::new(&device.0, archive)?));
        Ok(())
    })
}

/// Frees a library; NULL is nothing. Queues, lists and graphs made from it stay usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_library_free(library: *mut zcu_library) {
    // SAFETY: the caller keeps the header's rules for freeing.
    unsafe { free(library) }
}

/// Loads a kernel if it is not loaded yet, and says what it uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_library_load(
    library: *const zcu_library,
    kernel: *const zcu_kernel,
    info: *mut zcu_entry_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (library, kernel, out) = unsafe {
            (
                reference(library, "library")?,
                reference(kernel, "kernel")?,
                out(info, "info")?,
            )
        };
        let info = library.0.load(kernel.contract())?;
        out.put(zcu_entry_info {
            target: c_array(&info.target.to_string()),
            registers: info.registers,
            static_shared_bytes: info.static_shared_bytes,
            max_dynamic_shared_bytes: info.max_dynamic_shared_bytes,
            local_bytes: info.local_bytes,
            max_threads_per_block: info.max_threads_per_block,
        });
        Ok(())
    })
}

/// Loads every kernel now instead of on first use. count becomes how many are loaded; it may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_library_load_all(
    library: *const zcu_library,
    count: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles.
        let library = unsafe { reference(library, "library") }?;
        let loaded = library.0.load_all()?;
        if !count.is_null() {
            // SAFETY: the caller keeps the header's rules for outputs.
            unsafe { out(count, "count") }?.put(loaded);
        }
        Ok(())
    })
}
