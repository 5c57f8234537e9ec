//! Lists devices, chooses one and holds its context.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Arc;

use cubin_format::Capability;

use crate::driver::{Driver, DriverError};
use crate::error::CudaError;
use crate::ffi;

/// Environment variable that chooses the device where the caller does not.
pub const DEVICE_VARIABLE: &str = "ZINC_DEVICE";

/// Dynamic and static shared memory that a block may use without asking for more.
const SHARED_WITHOUT_OPTIN: u32 = 48 * 1024;

/// The identity of a GPU, the same in every process and after every reboot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// The form that nvidia-smi prints: `GPU-` and five groups of hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the driver says of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver's number of the device; `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` change it.
    pub ordinal: u32,
    /// The product name.
    pub name: String,
    /// The compute capability.
    pub capability: Capability,
    /// The identity.
    pub uuid: Uuid,
    /// Domain, bus, device and function, such as `0000:3b:00.0`.
    pub pci_bus_id: String,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Threads that one multiprocessor holds.
    pub threads_per_sm: u32,
    /// Second-level cache, bytes.
    pub l2_bytes: u32,
    /// Shared memory of one multiprocessor, bytes.
    pub shared_bytes_per_sm: u32,
    /// The most shared memory that one block may ask for, bytes.
    pub shared_bytes_per_block: u32,
    /// Memory clock, kHz; 0 where the driver does not say.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, bits.
    pub memory_bus_bits: u32,
    /// Whether the device shares the host's memory.
    pub integrated: bool,
    /// Highest clock of the multiprocessors, kHz; 0 where the driver does not say.
    pub sm_clock_khz: u32,
}

/// Which device to open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceSelector {
    /// What `ZINC_DEVICE` says, else [`DeviceSelector::Best`].
    #[default]
    Auto,
    /// The highest compute capability, then the most multiprocessors, then the lowest ordinal.
    Best,
    /// The driver's number.
    Ordinal(u32),
    /// The PCI address; domain and function may be left out.
    PciBusId(String),
    /// The identity.
    Uuid(Uuid),
}

impl FromStr for DeviceSelector {
    type Err = DeviceError;

    /// `auto`, `best`, an ordinal (`1`), a PCI address (`0000:3b:00.0`) or a UUID (`GPU-...`).
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let trimmed = text.trim();
        let unknown = || DeviceError::UnknownSelector {
            text: text.to_owned(),
        };
        if let Some(digits) = trimmed.strip_prefix("GPU-") {
            return parse_uuid(digits).map(Self::Uuid).ok_or_else(unknown);
        }
        match trimmed {
            "auto" => Ok(Self::Auto),
            "best" => Ok(Self::Best),
            _ if trimmed.contains(':') => match parse_pci(trimmed) {
                Some(_) => Ok(Self::PciBusId(trimmed.to_owned())),
                None => Err(unknown()),
            },
            _ if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit()) => {
                trimmed.parse().map(Self::Ordinal).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Best => f.write_str("best"),
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::PciBusId(id) => f.write_str(id),
            Self::Uuid(uuid) => write!(f, "{uuid}"),
        }
    }
}

/// Why no device was opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no usable driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The driver has no device.
    #[error(
        "the driver has no device; in a container, start it with --gpus all; check CUDA_VISIBLE_DEVICES"
    )]
    NoDevice,
    /// No device matches.
    #[error("there is no device {wanted}; found: {}", list(found))]
    NotFound {
        /// What was asked for.
        wanted: DeviceSelector,
        /// The devices there are.
        found: Vec<DeviceInfo>,
    },
    /// The text chooses nothing.
    #[error(
        "{text:?} is no device: wanted auto, best, an ordinal, a PCI address such as 0000:3b:00.0 or a GPU-... UUID"
    )]
    UnknownSelector {
        /// What was given.
        text: String,
    },
    /// A driver call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl DeviceError {
    /// Whether this machine simply has no usable GPU.
    pub fn is_no_device(&self) -> bool {
        match self {
            Self::NoDevice => true,
            Self::Driver(error) => error.is_no_device(),
            Self::Cuda(error) => error.code == CudaError::NO_DEVICE,
            Self::NotFound { .. } | Self::UnknownSelector { .. } => false,
        }
    }
}

fn list(devices: &[DeviceInfo]) -> String {
    let one = |device: &DeviceInfo| {
        let DeviceInfo {
            ordinal,
            name,
            pci_bus_id,
            uuid,
            ..
        } = device;
        format!("{ordinal} ({name}, {pci_bus_id}, {uuid})")
    };
    devices.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl Driver {
    /// Every device, in the driver's order.
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, CudaError> {
        let mut count = 0;
        // SAFETY: the driver is open and started.
        ffi::call(|error| unsafe { ffi::zinc_device_count(self.raw(), &mut count, error) })?;
        (0..count).map(|ordinal| describe(self, ordinal)).collect()
    }
}

fn describe(driver: &Driver, ordinal: u32) -> Result<DeviceInfo, CudaError> {
    let mut info = ffi::zinc_device_info::default();
    // SAFETY: the driver is open and started.
    ffi::call(|error| unsafe {
        ffi::zinc_device_describe(driver.raw(), ordinal, &mut info, error)
    })?;
    Ok(DeviceInfo {
        ordinal,
        name: ffi::buffer_text(&info.name),
        capability: Capability::new(info.capability_major, info.capability_minor),
        uuid: Uuid(info.uuid),
        pci_bus_id: ffi::buffer_text(&info.pci_bus_id),
        memory_bytes: info.memory_bytes,
        sm_count: info.sm_count,
        warp_size: info.warp_size,
        threads_per_sm: info.threads_per_sm,
        l2_bytes: info.l2_bytes,
        shared_bytes_per_sm: info.shared_bytes_per_sm,
        shared_bytes_per_block: info.shared_bytes_per_block_optin.max(SHARED_WITHOUT_OPTIN),
        memory_clock_khz: info.memory_clock_khz,
        memory_bus_bits: info.memory_bus_bits,
        integrated: info.integrated != 0,
        sm_clock_khz: info.sm_clock_khz,
    })
}

/// The device that `selector` means among `devices`.
///
/// # Errors
/// `NoDevice` where there is none at all, `NotFound` where none matches.
pub fn choose(
    devices: &[DeviceInfo],
    selector: &DeviceSelector,
) -> Result<DeviceInfo, DeviceError> {
    if devices.is_empty() {
        return Err(DeviceError::NoDevice);
    }
    let from_environment;
    let selector = match selector {
        DeviceSelector::Auto => {
            from_environment = environment_selector()?;
            &from_environment
        }
        other => other,
    };
    let rank = |device: &DeviceInfo| {
        (
            device.capability,
            device.sm_count,
            std::cmp::Reverse(device.ordinal),
        )
    };
    let found = match selector {
        DeviceSelector::Auto | DeviceSelector::Best => {
            devices.iter().max_by_key(|device| rank(device))
        }
        DeviceSelector::Ordinal(ordinal) => {
            devices.iter().find(|device| device.ordinal == *ordinal)
        }
        DeviceSelector::PciBusId(id) => {
            let wanted = parse_pci(id);
            devices
                .iter()
                .find(|device| wanted.is_some() && parse_pci(&device.pci_bus_id) == wanted)
        }
        DeviceSelector::Uuid(uuid) => devices.iter().find(|device| device.uuid == *uuid),
    };
    found.cloned().ok_or_else(|| DeviceError::NotFound {
        wanted: selector.clone(),
        found: devices.to_vec(),
    })
}

fn environment_selector() -> Result<DeviceSelector, DeviceError> {
    match std::env::var(DEVICE_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => text.parse(),
        _ => Ok(DeviceSelector::Best),
    }
}

/// Domain, bus, device and function of a PCI address; domain and function default to 0.
fn parse_pci(text: &str) -> Option<[u32; 4]> {
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = address.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    Some([
        number(domain)?,
        number(bus)?,
        number(device)?,
        number(function)?,
    ])
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Uuid(bytes))
}

#[derive(Debug)]
struct DeviceInner {
    driver: Driver,
    context: NonNull<ffi::zinc_context>,
    raw_context: usize,
    info: DeviceInfo,
    /// What keeps a context of another CUDA client alive.
    #[expect(dead_code, reason = "held for its drop")]
    owner: Option<Owner>,
}

/// Something that is kept alive for its drop.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

// SAFETY: the shim's context record is read-only and the driver's functions are thread-safe.
unsafe impl Send for DeviceInner {}
// SAFETY: as above.
unsafe impl Sync for DeviceInner {}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // SAFETY: everything made in the context holds this device, so nothing uses it any more.
        let released =
            ffi::call(|error| unsafe { ffi::zinc_context_release(self.context.as_ptr(), error) });
        if let Err(error) = released {
            tracing::debug!(%error, "context not released");
        }
    }
}

/// An open device: its primary context, shared with every other CUDA client of the process. Cheap to clone.
///
/// Calls make the context current on the calling thread while they run. A thread that had another context current gets it
/// back afterwards; a thread that had none keeps this one.
#[derive(Debug, Clone)]
pub struct Device(Arc<DeviceInner>);

impl Device {
    /// Opens a device of this machine's driver.
    ///
    /// # Errors
    /// No driver, no device, or none that matches.
    pub fn open(selector: &DeviceSelector) -> Result<Self, DeviceError> {
        Self::open_with(&Driver::load()?, selector)
    }

    /// Opens a device of `driver`.
    ///
    /// # Errors
    /// No device, or none that matches.
    pub fn open_with(driver: &Driver, selector: &DeviceSelector) -> Result<Self, DeviceError> {
        let info = choose(&driver.devices()?, selector)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver is open and started.
        ffi::call(|error| unsafe {
            ffi::zinc_context_retain(driver.raw(), info.ordinal, &mut context, error)
        })?;
        Ok(Self::new(driver, context, info, None))
    }

    /// A device around a context that another CUDA client owns, without taking it over.
    ///
    /// # Safety
    /// `context` is a valid `CUcontext` of `driver`'s process, and it outlives the device and everything made from it.
    ///
    /// # Errors
    /// A driver call that fails.
    pub unsafe fn from_raw_context(
        driver: &Driver,
        context: *mut c_void,
    ) -> Result<Self, DeviceError> {
        // SAFETY: the caller vouches for the context.
        unsafe { Self::wrap(driver, context, None) }
    }

    /// As [`Device::from_raw_context`]; the context lives as long as `owner`.
    ///
    /// # Safety
    /// As there, where there is no owner.
    pub(crate) unsafe fn wrap(
        driver: &Driver,
        context: *mut c_void,
        owner: Option<Owner>,
    ) -> Result<Self, DeviceError> {
        let mut wrapped = std::ptr::null_mut();
        let mut ordinal = 0;
        // SAFETY: the caller vouches for the context.
        ffi::call(|error| unsafe {
            ffi::zinc_context_wrap(driver.raw(), context, &mut wrapped, &mut ordinal, error)
        })?;
        let info = describe(driver, ordinal).inspect_err(|_| {
            // SAFETY: the wrapper was just made and nothing uses it.
            unsafe { ffi::zinc_context_release(wrapped, std::ptr::null_mut()) };
        })?;
        Ok(Self::new(driver, wrapped, info, owner))
    }

    fn new(
        driver: &Driver,
        context: *mut ffi::zinc_context,
        info: DeviceInfo,
        owner: Option<Owner>,
    ) -> Self {
        let context = NonNull::new(context).expect("the shim returns a context on success");
        Self(Arc::new(DeviceInner {
            driver: driver.clone(),
            context,
            // SAFETY: the context is open.
            raw_context: unsafe { ffi::zinc_context_raw(context.as_ptr()) } as usize,
            info,
            owner,
        }))
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// What the driver says of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The driver's handle of the context (`CUcontext`), for other CUDA clients.
    pub fn raw_context(&self) -> *mut c_void {
        self.0.raw_context as *mut c_void
    }

    /// Whether both are the same context.
    pub fn same_context(&self, other: &Device) -> bool {
        self.0.raw_context == other.0.raw_context
    }

    /// Free and total device memory, bytes.
    ///
    /// # Errors
    /// A driver call that fails.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is open.
        ffi::call(|error| unsafe {
            ffi::zinc_memory_info(self.raw(), &mut free, &mut total, error)
        })?;
        Ok((free, total))
    }

    /// Waits until everything on the device is done.
    ///
    /// # Errors
    /// A driver call or earlier asynchronous work that failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the context is open.
        ffi::call(|error| unsafe { ffi::zinc_context_synchronize(self.raw(), error) })
    }

    pub(crate) fn raw(&self) -> *const ffi::zinc_context {
        self.0.context.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ordinal: u32, major: u32, minor: u32, sm_count: u32) -> DeviceInfo {
        DeviceInfo {
            ordinal,
            name: format!("GPU {ordinal}"),
            capability: Capability::new(major, minor),
            uuid: Uuid([ordinal as u8; 16]),
            pci_bus_id: format!("0000:{:02x}:00.0", 0x3b + ordinal),
            memory_bytes: 1 << 30,
            sm_count,
            warp_size: 32,
            threads_per_sm: 2048,
            l2_bytes: 1 << 20,
            shared_bytes_per_sm: 228 << 10,
            shared_bytes_per_block: 227 << 10,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
            integrated: false,
            sm_clock_khz: 0,
        }
    }

    fn chosen(devices: &[DeviceInfo], selector: &str) -> Option<u32> {
        let selector: DeviceSelector = selector.parse().unwrap();
        choose(devices, &selector).ok().map(|device| device.ordinal)
    }

    #[test]
    fn best_device_has_the_highest_capability_then_most_sms_then_lowest_ordinal() {
        let devices = [
            device(0, 8, 9, 200),
            device(1, 9, 0, 100),
            device(2, 9, 0, 132),
            device(3, 9, 0, 132),
        ];
        assert_eq!(chosen(&devices, "best"), Some(2));
        assert_eq!(chosen(&devices[..2], "best"), Some(1));
    }

    #[test]
    fn device_is_chosen_by_ordinal_address_and_uuid() {
        let devices = [device(0, 9, 0, 132), device(1, 8, 0, 108)];
        assert_eq!(chosen(&devices, "1"), Some(1));
        assert_eq!(chosen(&devices, "0000:3c:00.0"), Some(1));
        assert_eq!(chosen(&devices, "3C:00"), Some(1));
        assert_eq!(chosen(&devices, "00000000:3c:00.0"), Some(1));
        assert_eq!(chosen(&devices, &devices[1].uuid.to_string()), Some(1));
        assert_eq!(chosen(&devices, "2"), None);
    }

    #[test]
    fn missing_device_error_lists_what_there_is() {
        let error = choose(&[device(0, 9, 0, 132)], &DeviceSelector::Ordinal(7)).unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.contains("no device 7")
                && shown.contains("GPU 0")
                && shown.contains("0000:3b:00.0"),
            "{shown}"
        );
        assert_eq!(
            choose(&[], &DeviceSelector::Best),
            Err(DeviceError::NoDevice)
        );
    }

    #[test]
    fn selector_junk_is_a_typed_error() {
        for text in [
            "",
            "gpu",
            "-1",
            "99999999999",
            "GPU-12",
            "1:2:3:4",
            ":",
            "3b:zz",
        ] {
            assert_eq!(
                text.parse::<DeviceSelector>(),
                Err(DeviceError::UnknownSelector {
                    text: text.to_owned()
                })
            );
        }
    }
}
