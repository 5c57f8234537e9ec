//! Finds, checks and opens the NVIDIA driver library.

use std::ffi::{CString, OsString, c_char};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::CudaError;
use crate::ffi;

/// Environment variable that names the only library to try.
pub const LIBRARY_VARIABLE: &str = "ZINC_LIBCUDA";

/// The driver's environment variables with the number of work queues from the host to a GPU, for kernels and for copies: 8
/// each where they are not set. CUDA Programming Guide, "CUDA Environment Variables".
pub const CONNECTION_VARIABLES: [&str; 2] = [
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
];

/// A CUDA version of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(pub u32);

impl DriverVersion {
    /// The oldest driver that is accepted. Machine code made by a CUDA 13 compiler is supported by drivers of CUDA 13.0 on;
    /// an older one may load it or fail at any point, so it is refused before anything is loaded.
    pub const MINIMUM: Self = Self(13_000);
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// What happened at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such file.
    Missing,
    /// The loader could not open it.
    NotLoaded(String),
    /// It is a toolkit's link-time stub.
    Stub,
    /// It is not a driver: this function is missing.
    NotADriver(String),
    /// It is a driver, but it did not start.
    NotStarted(CudaError),
    /// It is the library that an earlier place led to.
    Repeated(PathBuf),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such file"),
            Self::NotLoaded(reason) => f.write_str(reason),
            Self::Stub => f.write_str("a toolkit stub, skipped"),
            Self::NotADriver(function) => write!(f, "not a driver: it lacks {function}"),
            Self::NotStarted(error) => error.fmt(f),
            Self::Repeated(path) => write!(f, "the same as {}", path.display()),
        }
    }
}

/// One place that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// A path, or a bare name that the system's loader looked up.
    pub place: PathBuf,
    /// What happened.
    pub outcome: Outcome,
}

/// Why there is probably no driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Only stubs were found.
    OnlyStubs,
    /// WSL without the directory that Windows shares into it.
    WslLibraryMissing,
    /// WSL without a GPU passed through.
    WslWithoutGpu,
    /// A container that was started without its GPUs.
    ContainerWithoutGpu,
    /// The kernel driver is loaded, its library is missing.
    LibraryMissing,
    /// The override names something unusable.
    Override,
    /// No NVIDIA driver is installed.
    NoDriver,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnlyStubs => "only a CUDA toolkit's stub is installed, and no NVIDIA driver",
            Self::WslLibraryMissing => {
                "this is WSL, and /usr/lib/wsl/lib has no libcuda: install the NVIDIA driver in Windows, then run `wsl --shutdown`"
            }
            Self::WslWithoutGpu => "this is WSL without /dev/dxg: WSL 2 with a GPU driver in Windows is needed",
            Self::ContainerWithoutGpu => {
                "this is a container without GPUs: start it with --gpus all (NVIDIA container toolkit)"
            }
            Self::LibraryMissing => {
                "the kernel driver is loaded but its libcuda is not here: install it, or in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            }
            Self::Override => "ZINC_LIBCUDA names this library; unset it to search",
            Self::NoDriver => "no NVIDIA driver is installed",
        })
    }
}

/// Every place that was tried and the likely cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// In the order of the search.
    pub attempts: Vec<Attempt>,
    /// The likely cause.
    pub cause: Cause,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "likely cause: {}", self.cause)?;
        for attempt in &self.attempts {
            write!(f, "\n  {}: {}", attempt.place.display(), attempt.outcome)?;
        }
        Ok(())
    }
}

/// Why there is no usable driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// No driver library was found.
    #[error("no NVIDIA driver library was found; {search}")]
    NotFound {
        /// What was tried.
        search: Search,
    },
    /// A driver was found, but it did not start.
    #[error("the NVIDIA driver {} did not start", path.display())]
    NotStarted {
        /// The library.
        path: PathBuf,
        /// What it said.
        source: CudaError,
        /// What was tried.
        search: Search,
    },
    /// The driver is older than the kernels' compiler.
    #[error("the NVIDIA driver {} supports CUDA {found}, wanted {wanted} or newer: update the driver", path.display())]
    TooOld {
        /// The library.
        path: PathBuf,
        /// The oldest version that is accepted.
        wanted: DriverVersion,
        /// The driver's version.
        found: DriverVersion,
    },
    /// The driver lacks a function that its version should have.
    #[error("the NVIDIA driver {} lacks the function {function}", path.display())]
    MissingFunction {
        /// The library.
        path: PathBuf,
        /// The function.
        function: String,
    },
}

impl DriverError {
    /// Whether this machine simply has no usable GPU, as opposed to a driver that is there and wrong.
    pub fn is_no_device(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::NotStarted { source, .. } => source.code == CudaError::NO_DEVICE,
            Self::TooOld { .. } | Self::MissingFunction { .. } => false,
        }
    }
}

/// Where to look for the driver and what to accept.
#[derive(Debug, Clone)]
pub struct Lookup {
    places: Vec<PathBuf>,
    minimum: DriverVersion,
    overridden: bool,
}

impl Lookup {
    /// `ZINC_LIBCUDA` alone if it is set; else libcuda.so.1 and libcuda.so by the system's rules, the WSL directory and the
    /// directories of the usual distributions.
    pub fn standard() -> Self {
        match std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
            Some(path) => Self {
                overridden: true,
                ..Self::places([PathBuf::from(path)])
            },
            None => Self::places(STANDARD_PLACES.iter().map(PathBuf::from)),
        }
    }

    /// These places only. A bare name is looked up by the system's loader.
    pub fn places(places: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            places: places.into_iter().collect(),
            minimum: DriverVersion::MINIMUM,
            overridden: false,
        }
    }

    /// Accepts drivers from `minimum` on instead of [`DriverVersion::MINIMUM`].
    pub fn minimum(self, minimum: DriverVersion) -> Self {
        Self { minimum, ..self }
    }

    /// Opens the first driver that works.
    ///
    /// # Errors
    /// `NotFound` or `NotStarted` list every place tried; `TooOld` for the first working driver below the minimum.
    pub fn load(&self) -> Result<Driver, DriverError> {
        let mut attempts = Vec::new();
        let mut seen = Vec::new();
        for place in &self.places {
            match self.open(place, &mut seen) {
                Ok(driver) => return driver.map(Driver::from),
                Err(outcome) => {
                    tracing::debug!(place = %place.display(), %outcome, "driver lookup");
                    attempts.push(Attempt {
                        place: place.clone(),
                        outcome,
                    });
                }
            }
        }
        let search = Search {
            cause: likely_cause(&attempts, self.overridden, &System::look()),
            attempts,
        };
        let not_started = search
            .attempts
            .iter()
            .find_map(|attempt| match &attempt.outcome {
                Outcome::NotStarted(source) => Some((attempt.place.clone(), source.clone())),
                _ => None,
            });
        Err(match not_started {
            Some((path, source)) => DriverError::NotStarted {
                path,
                source,
                search,
            },
            None => DriverError::NotFound { search },
        })
    }

    /// Tries one place: a driver, a driver that ends the search with an error, or why the search goes on.
    fn open(
        &self,
        place: &Path,
        seen: &mut Vec<PathBuf>,
    ) -> Result<Result<DriverInner, DriverError>, Outcome> {
        if place.components().count() > 1 && !place.exists() {
            return Err(Outcome::Missing);
        }
        let mut library = Opened::open(place)?;
        let path = library.path().unwrap_or_else(|| place.to_owned());
        let canonical = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&canonical) {
            return Err(Outcome::Repeated(canonical));
        }
        seen.push(canonical.clone());
        if [&path, &canonical]
            .iter()
            .any(|path| path.iter().any(|part| part == "stubs"))
        {
            return Err(Outcome::Stub);
        }
        library.start().map_err(|error| match error.code {
            CudaError::STUB_LIBRARY => Outcome::Stub,
            _ => Outcome::NotStarted(error),
        })?;
        let found = library.version().map_err(Outcome::NotStarted)?;
        if found < self.minimum {
            let wanted = self.minimum;
            return Ok(Err(DriverError::TooOld {
                path,
                wanted,
                found,
            }));
        }
        if let Err(error) = library.resolve() {
            let function = error.name.clone();
            return Ok(Err(DriverError::MissingFunction { path, function }));
        }
        tracing::debug!(path = %path.display(), version = %found, "driver opened");
        Ok(Ok(DriverInner {
            raw: library.keep(),
            path,
            version: found,
        }))
    }
}

const STANDARD_PLACES: &[&str] = &[
    "libcuda.so.1",
    "libcuda.so",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib64/nvidia/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib64-nvidia/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
];

/// A library that is open but not accepted yet; closed again unless kept.
struct Opened(Option<NonNull<ffi::zinc_driver>>);

impl Opened {
    fn open(place: &Path) -> Result<Self, Outcome> {
        let path = CString::new(place.as_os_str().as_bytes())
            .map_err(|_| Outcome::NotLoaded("the path has a NUL byte".into()))?;
        let mut message: [c_char; 1024] = [0; 1024];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the path is NUL-terminated and the buffer has the length given.
        ffi::call(|error| unsafe {
            ffi::zinc_driver_open(
                path.as_ptr(),
                message.as_mut_ptr(),
                message.len(),
                &mut raw,
                error,
            )
        })
        .map_err(|error| match error.code {
            ffi::ZINC_E_SYMBOL => Outcome::NotADriver(error.name.clone()),
            ffi::ZINC_E_OPEN => Outcome::NotLoaded(ffi::buffer_text(&message)),
            _ => Outcome::NotLoaded(error.to_string()),
        })?;
        Ok(Self(NonNull::new(raw)))
    }

    fn raw(&self) -> *mut ffi::zinc_driver {
        self.0.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    fn path(&self) -> Option<PathBuf> {
        let mut buffer: [c_char; 4096] = [0; 4096];
        // SAFETY: the driver is open and the buffer has the length given.
        unsafe { ffi::zinc_driver_path(self.raw(), buffer.as_mut_ptr(), buffer.len()) };
        let bytes: Vec<u8> = buffer
            .iter()
            .take_while(|&&byte| byte != 0)
            .map(|&byte| byte as u8)
            .collect();
        (!bytes.is_empty())
            .then(|| PathBuf::from(OsString::from(std::ffi::OsStr::from_bytes(&bytes))))
    }

    fn start(&mut self) -> Result<(), CudaError> {
        // SAFETY: the driver is open.
        ffi::call(|error| unsafe { ffi::zinc_driver_start(self.raw(), error) })
    }

    fn version(&self) -> Result<DriverVersion, CudaError> {
        let mut version = 0;
        // SAFETY: the driver is open.
        ffi::call(|error| unsafe { ffi::zinc_driver_version(self.raw(), &mut version, error) })?;
        Ok(DriverVersion(u32::try_from(version).unwrap_or(0)))
    }

    fn resolve(&mut self) -> Result<(), CudaError> {
        // SAFETY: the driver is open and nothing else uses it yet.
        ffi::call(|error| unsafe { ffi::zinc_driver_resolve(self.raw(), error) })
    }

    fn keep(mut self) -> NonNull<ffi::zinc_driver> {
        self.0.take().expect("the shim returns a driver on success")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(raw) = self.0 {
            // SAFETY: the library was rejected, so nothing holds a pointer into it.
            unsafe { ffi::zinc_driver_close(raw.as_ptr()) };
        }
    }
}

#[derive(Debug)]
struct DriverInner {
    raw: NonNull<ffi::zinc_driver>,
    path: PathBuf,
    version: DriverVersion,
}

// SAFETY: the driver's functions are thread-safe, and the table is read-only after it was resolved.
unsafe impl Send for DriverInner {}
// SAFETY: as above.
unsafe impl Sync for DriverInner {}

/// The NVIDIA driver, open and started. Cheap to clone. The library stays open until the process ends.
#[derive(Debug, Clone)]
pub struct Driver(Arc<DriverInner>);

impl From<DriverInner> for Driver {
    fn from(inner: DriverInner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Driver {
    /// The driver of this machine, by [`Lookup::standard`]. Found once per process; a failure is not remembered.
    ///
    /// # Errors
    /// See [`Lookup::load`].
    pub fn load() -> Result<Self, DriverError> {
        static LOADED: Mutex<Option<Driver>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = &*loaded {
            return Ok(driver.clone());
        }
        let driver = Lookup::standard().load()?;
        *loaded = Some(driver.clone());
        Ok(driver)
    }

    /// The driver library at `path` and no other.
    ///
    /// # Errors
    /// See [`Lookup::load`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, DriverError> {
        Lookup::places([path.as_ref().to_owned()]).load()
    }

    /// Lets the driver make one work queue of a kind to a GPU, where [`CONNECTION_VARIABLES`] do not say how many. To be called
    /// before the driver is loaded.
    ///
    /// Making eight takes a quarter to a half of the time from the start of a process to its first result. Streams that
    /// share a queue may wait for one another: for processes whose kernels are on one stream.
    ///
    /// # Safety
    /// As [`std::env::set_var`]: nothing else reads or writes the environment at the time.
    pub unsafe fn prefer_one_connection() {
        for name in CONNECTION_VARIABLES {
            if std::env::var_os(name).is_none() {
                // SAFETY: as the caller promises.
                unsafe { std::env::set_var(name, "1") };
            }
        }
    }

    /// The library that was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The CUDA version that the driver supports.
    pub fn version(&self) -> DriverVersion {
        self.0.version
    }

    pub(crate) fn raw(&self) -> *const ffi::zinc_driver {
        self.0.raw.as_ptr()
    }
}

/// What the search for the likely cause looks at.
#[derive(Debug, Clone, Copy, Default)]
struct System {
    wsl: bool,
    dxg: bool,
    container: bool,
    kernel_driver: bool,
}

impl System {
    fn look() -> Self {
        let exists = |path: &str| Path::new(path).exists();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            wsl: kernel.to_ascii_lowercase().contains("microsoft"),
            dxg: exists("/dev/dxg"),
            container: exists("/.dockerenv")
                || exists("/run/.containerenv")
                || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            kernel_driver: exists("/proc/driver/nvidia/version") || exists("/dev/nvidiactl"),
        }
    }
}

fn likely_cause(attempts: &[Attempt], overridden: bool, system: &System) -> Cause {
    let stubs = attempts
        .iter()
        .any(|attempt| attempt.outcome == Outcome::Stub);
    match system {
        _ if overridden => Cause::Override,
        System {
            wsl: true,
            dxg: false,
            ..
        } => Cause::WslWithoutGpu,
        System { wsl: true, .. } => Cause::WslLibraryMissing,
        System {
            kernel_driver: true,
            ..
        } => Cause::LibraryMissing,
        System {
            container: true, ..
        } => Cause::ContainerWithoutGpu,
        _ if stubs => Cause::OnlyStubs,
        _ => Cause::NoDriver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(system: System) -> Cause {
        likely_cause(&[], false, &system)
    }

    #[test]
    fn cause_follows_the_system() {
        let none = System::default();
        assert_eq!(cause(none), Cause::NoDriver);
        assert_eq!(
            cause(System {
                container: true,
                ..none
            }),
            Cause::ContainerWithoutGpu
        );
        assert_eq!(
            cause(System {
                kernel_driver: true,
                container: true,
                ..none
            }),
            Cause::LibraryMissing
        );
        assert_eq!(cause(System { wsl: true, ..none }), Cause::WslWithoutGpu);
        assert_eq!(
            cause(System {
                wsl: true,
                dxg: true,
                ..none
            }),
            Cause::WslLibraryMissing
        );
        assert_eq!(likely_cause(&[], true, &none), Cause::Override);
    }

    #[test]
    fn cause_names_stubs_where_only_stubs_were_found() {
        let stub = Attempt {
            place: "libcuda.so".into(),
            outcome: Outcome::Stub,
        };
        assert_eq!(
            likely_cause(&[stub], false, &System::default()),
            Cause::OnlyStubs
        );
    }

    #[test]
    fn version_shows_major_and_minor() {
        assert_eq!(DriverVersion(12_080).to_string(), "12.8");
        assert_eq!(DriverVersion(13_000).to_string(), "13.0");
    }

    #[test]
    fn standard_places_try_the_versioned_name_first_and_know_wsl() {
        assert_eq!(STANDARD_PLACES[0], "libcuda.so.1");
        assert!(STANDARD_PLACES.contains(&"/usr/lib/wsl/lib/libcuda.so.1"));
    }
}
